#include "server/spec/job_file_reader.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "server/spec/other_fields.h"
#include "server/spec/spec_error.h"
#include "server/spec/spec_fields.h"
#include "server/spec/spec_rows.h"

namespace roundhouse {
namespace {

using Kind = SpecValue::Kind;

// For a name that is in nobody's table.
constexpr size_t kShownNameBytes = 60;

const std::map<std::string, const SpecFieldRow*>& RowsByName() {
  static const auto* const rows = [] {
    auto* r = new std::map<std::string, const SpecFieldRow*>;
    for (const SpecFieldRow& row : SpecFieldRows()) {
      r->emplace(row.info.name, &row);
      for (const std::string& alias : row.info.aliases) r->emplace(alias, &row);
    }
    return r;
  }();
  return *rows;
}

SpecValue OurValue(const char* text, int line) {
  SpecValue value{.kind = Kind::kString, .line = line, .text = text};
  if (value.text == "true") value.kind = Kind::kBool;
  if (value.text == "0") value.kind = Kind::kInteger;
  return value;
}

// One pass over the file's fields, then what holds between them.  A field with
// a fault has no second one that follows from it.
class Reader {
 public:
  explicit Reader(const std::string& file_name) : file_(file_name, JobSpec()) {}

  JobFile Read(const SpecValue& root) {
    for (const auto& [key, value] : root.entries) ReadEntry(key, value);
    CheckRequired();
    CheckNeeds();
    CheckMethod();
    ApplyDtype();
    ApplyBatch();
    CheckPlan();
    ApplySchedule();
    CheckData();
    CheckEvaluation();
    Warn();
    file_.spec() = std::move(draft_.spec);
    return std::move(file_);
  }

 private:
  using Given = WrittenField;

  void Fault(absl::StatusCode code, FieldReason reason, const Given& at,
             const std::string& what) {
    const std::string key = at.key.size() <= kShownNameBytes
                                ? at.key
                                : at.key.substr(0, kShownNameBytes) + "...";
    file_.AddFault(at.line, FieldError(code, reason, key, what));
  }
  void Fault(FieldReason reason, const Given& at, const std::string& what) {
    Fault(absl::StatusCode::kInvalidArgument, reason, at, what);
  }

  void ReadEntry(const SpecValue& key, const SpecValue& value) {
    const Given at{key.text, key.line};
    if (!seen_.insert(at.key).second) {
      return Fault(FieldReason::kDuplicateField, at,
                   "is given twice; keep one of them");
    }
    const auto found = RowsByName().find(at.key);
    if (found != RowsByName().end())
      return ReadField(*found->second, at, value);
    const OtherField* const other = FindOtherField(at.key);
    if (other == nullptr) return UnknownField(at);
    if (value.kind != Kind::kNull) ReadOther(*other, at, value);
  }

  void ReadField(const SpecFieldRow& row, const Given& at,
                 const SpecValue& value) {
    if (value.kind == Kind::kNull) return;
    if (const Given* const first = Find(row.info.name)) {
      return BothGiven(*first, at, "the same");
    }
    file_.AddField(row.info.name, at);
    const absl::Status status = row.set(value, &draft_);
    if (status.ok()) return;
    broken_.insert(row.info.name);
    Fault(status.code(),
          absl::IsUnimplemented(status) ? FieldReason::kNotAvailable
                                        : FieldReason::kInvalidValue,
          at, std::string(status.message()));
  }

  void ReadOther(const OtherField& other, const Given& at,
                 const SpecValue& value) {
    if (other.ignored) return ignored_.push_back(at);
    const OtherValue* const known = FindOtherValue(other, value);
    if (known == nullptr) {
      broken_.insert(other.stands_for);
      return Fault(FieldReason::kOtherToolsField, at, other.remedy);
    }
    if (*known->needs != '\0') needs_.emplace_back(at, known);
    if (*known->field == '\0') return;
    ReadField(*RowsByName().at(known->field), at,
              OurValue(known->value, at.line));
  }

  void UnknownField(const Given& at) {
    std::vector<std::string> names;
    for (const auto& [name, row] : RowsByName()) names.push_back(name);
    const std::string nearest = NearestName(at.key, names);
    Fault(FieldReason::kUnknownField, at,
          nearest.empty()
              ? "unknown field; roundhouse job-template shows the usual ones, "
                "docs/job-spec.md all"
              : absl::StrCat("unknown field; did you mean ", nearest, "?"));
  }

  // `first` says `what` as well.
  void BothGiven(const Given& first, const Given& second,
                 const std::string& what) {
    Fault(FieldReason::kConflictingFields, second,
          absl::StrCat(first.key, " (line ", first.line, ") says ", what,
                       "; keep one of them"));
  }

  const Given* Find(const std::string& name) const { return file_.Find(name); }

  bool Sound(std::initializer_list<const char*> names) const {
    return std::none_of(names.begin(), names.end(), [this](const char* name) {
      return broken_.contains(name);
    });
  }

  void CheckRequired() {
    for (const char* name : {"model_name_or_path", "dataset"}) {
      if (Find(name) != nullptr || !Sound({name})) continue;
      file_.AddFault(
          0,
          RequestError(FieldReason::kMissingField, name,
                       absl::StrCat(name, " is missing; every job needs it")));
    }
  }

  void CheckNeeds() {
    for (const auto& [at, known] : needs_) {
      if (Find(known->needs) != nullptr) continue;
      Fault(FieldReason::kMissingField, at,
            absl::StrCat(known->text, " needs ", known->needs,
                         " beside it, or remove this line"));
    }
  }

  // What to do where another tool's field is why `name` is there.
  std::string OrRemove(const std::string& name) const {
    for (const auto& [at, known] : needs_) {
      if (known->needs == name) {
        return absl::StrCat("; or remove it and ", at.key);
      }
    }
    return "";
  }

  void CheckMethod() {
    if (!Sound({"method"})) return;
    if (draft_.spec.method == TrainingMethod::kFull) {
      for (const char* name : {"adapter_name_or_path", "lora_r", "lora_alpha",
                               "lora_dropout", "target_modules"}) {
        const Given* const given = Find(name);
        if (given == nullptr || !Sound({name})) continue;
        Fault(FieldReason::kConflictingFields, *given,
              "belongs to method: lora, and the job's method is full; say "
              "method: lora or remove this line");
      }
      return;
    }
    if (draft_.spec.model_init == ModelInit::kRandom) {
      Fault(FieldReason::kConflictingFields, *Find("model_init"),
            "method: lora needs the weights of a model to adapt; remove this "
            "line");
    }
    const Given* const adapter = Find("adapter_name_or_path");
    const Given* const checkpoint = Find("resume_from_checkpoint");
    if (adapter == nullptr || checkpoint == nullptr) return;
    BothGiven(*checkpoint, *adapter, "where the adapter starts from too");
  }

  void ApplyDtype() {
    const Given* by = draft_.spec.dtype.has_value() ? Find("dtype") : nullptr;
    for (const auto& [name, on, dtype] :
         {std::tuple("bf16", draft_.bf16, DType::kBF16),
          std::tuple("fp16", draft_.fp16, DType::kF16)}) {
      if (!on) continue;
      const Given& flag = *Find(name);
      if (by != nullptr) return BothGiven(*by, flag, "the dtype too");
      by = &flag;
      draft_.spec.dtype = dtype;
    }
    // Elsewhere these two say fp32 where neither is true.
    if (by == nullptr && Find("dtype") == nullptr &&
        (Find("bf16") != nullptr || Find("fp16") != nullptr) &&
        Sound({"bf16", "fp16"})) {
      draft_.spec.dtype = DType::kF32;
    }
    if (draft_.spec.dtype != DType::kF16 ||
        draft_.spec.optimizer_mode != OptimizerMode::kAsync) {
      return;
    }
    Fault(
        FieldReason::kConflictingFields, *Find("optimizer_mode"),
        absl::StrCat("async does not go with fp16 (",
                     by->key == "fp16" ? "" : by->key + ", ", "line ", by->line,
                     "), whose loss scale is known only when the step before "
                     "is reduced; say sync or bf16"));
  }

  void ApplyBatch() {
    if (!Sound({"batch_size", "micro_batch_size",
                "gradient_accumulation_steps"})) {
      return;
    }
    JobSpec& spec = draft_.spec;
    const Given* const batch = Find("batch_size");
    const Given* const micro = Find("micro_batch_size");
    if (const Given* const steps = Find("gradient_accumulation_steps")) {
      if (batch != nullptr) {
        return BothGiven(*batch, *steps, "the size of a step's batch too");
      }
      if (!spec.micro_batch_size.has_value()) {
        return Fault(FieldReason::kMissingField, *steps,
                     "needs per_device_train_batch_size beside it");
      }
      spec.batch_size =
          *spec.micro_batch_size * *draft_.gradient_accumulation_steps;
      if (spec.batch_size > kMaxBatchSize) {
        return Fault(
            FieldReason::kInvalidValue, *steps,
            absl::StrCat("times the micro-batch is a batch_size of ",
                         spec.batch_size, "; at most ", kMaxBatchSize));
      }
    } else if (batch == nullptr && spec.micro_batch_size.has_value() &&
               micro->key == "per_device_train_batch_size") {
      spec.batch_size = *spec.micro_batch_size;
    }
    CheckBatch();
  }

  void CheckBatch() {
    const JobSpec& spec = draft_.spec;
    if (spec.micro_batch_size.has_value() &&
        *spec.micro_batch_size > spec.batch_size) {
      return Fault(FieldReason::kInvalidValue, *Find("micro_batch_size"),
                   absl::StrCat(*spec.micro_batch_size,
                                " is more than the batch_size of ",
                                spec.batch_size, "; write that or less"));
    }
    if (!Sound({"micro_batches_per_round", "gradient_groups"})) return;
    const int64_t m = spec.micro_batches_per_round.value_or(spec.batch_size);
    if (spec.gradient_groups.has_value() && *spec.gradient_groups > m) {
      Fault(FieldReason::kInvalidValue, *Find("gradient_groups"),
            absl::StrCat(*spec.gradient_groups, " groups of ", m,
                         " micro-batches at most"));
    }
  }

  void CheckPlan() {
    const JobSpec& spec = draft_.spec;
    if (!spec.plan.has_value() || !Sound({"gradient_groups"})) return;
    const absl::Status status =
        CheckPlanWidths(*spec.plan, spec.gradient_groups.value_or(1));
    if (status.ok()) return;
    Fault(FieldReason::kInvalidValue, *Find("plan"),
          std::string(status.message()));
  }

  void ApplySchedule() {
    JobSpec& spec = draft_.spec;
    const Given* const epochs = Find("num_train_epochs");
    if (spec.max_steps != 0) {
      if (epochs != nullptr) {
        BothGiven(*epochs, *Find("max_steps"), "when the job ends too");
      }
      spec.num_train_epochs = 0;
    }
    if (spec.warmup_ratio != 0 && spec.warmup_steps != 0) {
      BothGiven(*Find("warmup_ratio"), *Find("warmup_steps"),
                "how long the warm-up is too");
    }
    const bool warmup = spec.warmup_ratio != 0 || spec.warmup_steps != 0;
    if (warmup && spec.lr_scheduler_type == LrSchedulerType::kConstant) {
      Fault(FieldReason::kConflictingFields, *Find("lr_scheduler_type"),
            "constant has no warm-up; say constant_with_warmup");
    }
  }

  void CheckData() {
    const JobSpec& spec = draft_.spec;
    if (spec.validation_split > 0 &&
        spec.validation_split < kMinValidationSplit) {
      Fault(FieldReason::kInvalidValue, *Find("validation_split"),
            absl::StrCat("a share of the rows is at least ",
                         kMinValidationSplit, "; 0 is none"));
    }
    if (spec.validation_split > 0 && !spec.validation_dataset.empty()) {
      BothGiven(*Find("validation_dataset"), *Find("validation_split"),
                "which rows are evaluated on too");
    }
    if (spec.truncation == Truncation::kSplit &&
        spec.dataset_format != DatasetFormat::kAuto &&
        spec.dataset_format != DatasetFormat::kText) {
      Fault(FieldReason::kConflictingFields, *Find("truncation"),
            "split is for dataset_format text alone");
    }
  }

  // What asks for evaluations has something to evaluate, and says how often.
  void CheckEvaluation() {
    const JobSpec& spec = draft_.spec;
    if (!Sound({"validation_dataset", "validation_split", "eval_prompts",
                "eval_steps"})) {
      return;
    }
    const std::pair<const char*, bool> asked[] = {
        {"eval_steps", spec.eval_steps > 0},
        {"load_best_model_at_end", spec.load_best_model_at_end},
        {"early_stopping_patience", spec.early_stopping_patience > 0}};
    for (const auto& [name, on] : asked) {
      if (!on) continue;
      const bool prompts = name == std::string("eval_steps");
      if (!HasValidation(spec) && !(prompts && !spec.eval_prompts.empty())) {
        Fault(
            FieldReason::kMissingField, *Find(name),
            absl::StrCat(prompts ? "needs a validation_dataset, a "
                                   "validation_split or eval_prompts beside it"
                                 : "needs a validation_dataset or a "
                                   "validation_split beside it",
                         OrRemove(name)));
      } else if (spec.eval_steps == 0) {
        Fault(FieldReason::kMissingField, *Find(name),
              "needs eval_steps beside it");
      }
    }
  }

  // LLaMA-Factory's word for the rank has another alpha behind it.
  void WarnOfAlpha() {
    const Given* const rank = Find("lora_r");
    if (rank == nullptr || rank->key != "lora_rank" || !Sound({"lora_r"}) ||
        Find("lora_alpha") != nullptr ||
        Find("adapter_name_or_path") != nullptr) {
      return;
    }
    const double theirs = 2.0 * static_cast<double>(*draft_.spec.lora_r);
    const double ours = DefaultAdapter().alpha;
    if (ours == theirs) return;
    file_.AddWarning(absl::StrCat(
        "lora_alpha is not given and is ", ours, ", where LLaMA-Factory takes ",
        "twice the lora_rank (line ", rank->line, "); say lora_alpha: ", theirs,
        " to have that, or lora_alpha: ", ours));
  }

  void Warn() {
    WarnOfAlpha();
    if (ignored_.empty()) return;
    const auto text = [](std::string* out, const Given& at) {
      absl::StrAppend(out, at.key, " (line ", at.line, ")");
    };
    file_.AddWarning(absl::StrCat(
        "what other tools call ", absl::StrJoin(ignored_, ", ", text),
        ignored_.size() == 1 ? " means" : " mean",
        " nothing to this server and change", ignored_.size() == 1 ? "s" : "",
        " no result"));
  }

  JobFile file_;
  SpecDraft draft_;
  std::set<std::string> seen_;
  std::set<std::string> broken_;  // by the vocabulary's name
  std::vector<Given> ignored_;
  std::vector<std::pair<Given, const OtherValue*>> needs_;
};

}  // namespace

absl::StatusOr<JobFile> ReadJobText(const std::string& text,
                                    const std::string& file_name,
                                    SpecWriter writer) {
  ASSIGN_OR_RETURN(const SpecValue root,
                   ParseSpecText(text, file_name, writer));
  if (root.kind != Kind::kMap) {
    return FieldError(
        FieldReason::kInvalidSyntax, "",
        absl::StrCat(file_name, ":", std::max(root.line, 1),
                     ": expected fields (name: value), got ", Describe(root)));
  }
  return Reader(file_name).Read(root);
}

absl::StatusOr<JobFile> ReadJobFile(const std::string& text,
                                    const std::string& file_name) {
  return ReadJobText(text, file_name.empty() ? "job file" : file_name,
                     SpecWriter::kCaller);
}

}  // namespace roundhouse
