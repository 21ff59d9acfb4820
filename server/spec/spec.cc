#include "server/spec/spec.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/auto_sizes.h"
#include "server/spec/spec_error.h"
#include "server/spec/spec_fields.h"
#include "server/spec/spec_rows.h"
#include "server/spec/spec_value.h"

namespace roundhouse {
namespace {

// Levenshtein distance, one row at a time.
int EditDistance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

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

// One pass over the file's fields, then what holds between them.
class Reader {
 public:
  explicit Reader(const std::string& file_name) : file_name_(file_name) {}

  absl::StatusOr<JobSpec> Read(const SpecValue& root) {
    if (root.kind != SpecValue::Kind::kMap) {
      return FieldError("INVALID_SYNTAX", "",
                        absl::StrCat(file_name_, ":", std::max(root.line, 1),
                                     ": expected fields (name: value), got ",
                                     Describe(root)));
    }
    for (const auto& [key, value] : root.entries) {
      RETURN_IF_ERROR(ReadField(key, value));
    }
    RETURN_IF_ERROR(CheckRequired());
    RETURN_IF_ERROR(CheckMethod());
    RETURN_IF_ERROR(ApplyDtype());
    RETURN_IF_ERROR(ApplyBatch());
    RETURN_IF_ERROR(CheckPlan());
    RETURN_IF_ERROR(ApplySchedule());
    RETURN_IF_ERROR(CheckData());
    RETURN_IF_ERROR(CheckEvaluation());
    return draft_.spec;
  }

 private:
  struct Given {
    std::string key;
    int line;
  };

  absl::Status Error(absl::StatusCode code, const std::string& reason,
                     const Given& at, const std::string& what) const {
    return FieldError(
        code, reason, at.key,
        absl::StrCat(file_name_, ":", at.line, ": ", at.key, ": ", what));
  }
  absl::Status Error(const std::string& reason, const Given& at,
                     const std::string& what) const {
    return Error(absl::StatusCode::kInvalidArgument, reason, at, what);
  }

  absl::Status ReadField(const SpecValue& key, const SpecValue& value) {
    const Given at{key.text, key.line};
    const auto found = RowsByName().find(key.text);
    if (found == RowsByName().end()) return UnknownField(at);
    const SpecFieldRow& row = *found->second;
    if (value.kind == SpecValue::Kind::kNull) return absl::OkStatus();
    const auto [given, fresh] = given_.emplace(row.info.name, at);
    if (!fresh) return BothGiven(given->second, at, "the same thing");
    const absl::Status status = row.set(value, &draft_);
    if (status.ok()) return status;
    return Error(
        status.code(),
        absl::IsUnimplemented(status) ? "NOT_AVAILABLE" : "INVALID_VALUE", at,
        std::string(status.message()));
  }

  absl::Status UnknownField(const Given& at) const {
    std::vector<std::string> names;
    for (const auto& [name, row] : RowsByName()) names.push_back(name);
    const std::string nearest = NearestName(at.key, names);
    return Error("UNKNOWN_FIELD", at,
                 nearest.empty() ? "unknown field; docs/job-spec.md lists them"
                                 : absl::StrCat("unknown field; did you mean ",
                                                nearest, "?"));
  }

  absl::Status BothGiven(const Given& first, const Given& second,
                         const std::string& what) const {
    return Error("CONFLICTING_FIELDS", second,
                 absl::StrCat("is ", what, " as ", first.key, " (line ",
                              first.line, "); give one of them"));
  }

  const Given* Find(const std::string& name) const {
    const auto found = given_.find(name);
    return found == given_.end() ? nullptr : &found->second;
  }

  absl::Status CheckRequired() const {
    for (const char* name : {"model_name_or_path", "dataset"}) {
      if (Find(name) != nullptr) continue;
      return FieldError("MISSING_FIELD", name,
                        absl::StrCat(file_name_, ": ", name, " is missing"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckMethod() const {
    if (draft_.spec.method == Method::kFull) {
      for (const char* name : {"adapter_name_or_path", "lora_r", "lora_alpha",
                               "lora_dropout", "target_modules"}) {
        if (const Given* given = Find(name)) {
          return Error("CONFLICTING_FIELDS", *given,
                       "belongs to method: lora; the job's method is full");
        }
      }
      return absl::OkStatus();
    }
    if (draft_.spec.model_init == ModelInit::kRandom) {
      return Error("CONFLICTING_FIELDS", *Find("model_init"),
                   "method: lora needs the weights of a model to adapt");
    }
    const Given* adapter = Find("adapter_name_or_path");
    const Given* checkpoint = Find("resume_from_checkpoint");
    if (adapter == nullptr || checkpoint == nullptr) return absl::OkStatus();
    return BothGiven(*checkpoint, *adapter, "where the adapter starts from");
  }

  absl::Status ApplyDtype() {
    const Given* by = Find("dtype");
    for (const auto& [name, on, dtype] :
         {std::tuple("bf16", draft_.bf16, SpecDtype::kBf16),
          std::tuple("fp16", draft_.fp16, SpecDtype::kFp16)}) {
      if (!on) continue;
      const Given& flag = *Find(name);
      if (by != nullptr) return BothGiven(*by, flag, "the same thing");
      by = &flag;
      draft_.spec.dtype = dtype;
    }
    if (draft_.spec.dtype != SpecDtype::kFp16 ||
        draft_.spec.optimizer_mode != OptimizerMode::kAsync) {
      return absl::OkStatus();
    }
    return Error("CONFLICTING_FIELDS", *Find("optimizer_mode"),
                 absl::StrCat("async does not go with fp16, which ", by->key,
                              " (line ", by->line,
                              ") says: its loss scale is known when the step "
                              "before is reduced"));
  }

  absl::Status ApplyBatch() {
    JobSpec& spec = draft_.spec;
    const Given* batch = Find("batch_size");
    const Given* micro = Find("micro_batch_size");
    if (const Given* steps = Find("gradient_accumulation_steps")) {
      if (batch != nullptr) {
        return BothGiven(*batch, *steps,
                         "(times the micro-batch) the same thing");
      }
      if (!spec.micro_batch_size.has_value()) {
        return Error("MISSING_FIELD", *steps,
                     "needs per_device_train_batch_size beside it");
      }
      spec.batch_size =
          *spec.micro_batch_size * *draft_.gradient_accumulation_steps;
    } else if (batch == nullptr && spec.micro_batch_size.has_value() &&
               micro->key == "per_device_train_batch_size") {
      spec.batch_size = *spec.micro_batch_size;
    }
    return CheckBatch();
  }

  absl::Status CheckBatch() const {
    const JobSpec& spec = draft_.spec;
    if (spec.micro_batch_size.has_value() &&
        *spec.micro_batch_size > spec.batch_size) {
      return Error("INVALID_VALUE", *Find("micro_batch_size"),
                   absl::StrCat(*spec.micro_batch_size,
                                " is more than batch_size, ", spec.batch_size));
    }
    const int64_t m = spec.micro_batches_per_round.value_or(spec.batch_size);
    if (spec.gradient_groups.has_value() && *spec.gradient_groups > m) {
      return Error("INVALID_VALUE", *Find("gradient_groups"),
                   absl::StrCat(*spec.gradient_groups, " groups of ", m,
                                " micro-batches at most"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPlan() const {
    const JobSpec& spec = draft_.spec;
    if (!spec.plan.has_value()) return absl::OkStatus();
    const absl::Status status =
        CheckPlanWidths(*spec.plan, spec.gradient_groups.value_or(1));
    if (status.ok()) return status;
    return Error("INVALID_VALUE", *Find("plan"), std::string(status.message()));
  }

  absl::Status ApplySchedule() {
    JobSpec& spec = draft_.spec;
    const Given* epochs = Find("num_train_epochs");
    const Given* steps = Find("max_steps");
    if (spec.max_steps != 0) {
      if (epochs != nullptr) {
        return BothGiven(*epochs, *steps, "an end of the job");
      }
      spec.num_train_epochs = 0;
    }
    if (spec.warmup_ratio != 0 && spec.warmup_steps != 0) {
      return BothGiven(*Find("warmup_ratio"), *Find("warmup_steps"),
                       "the same thing");
    }
    const bool warmup = spec.warmup_ratio != 0 || spec.warmup_steps != 0;
    if (warmup && spec.lr_scheduler_type == LrSchedulerType::kConstant) {
      return Error("CONFLICTING_FIELDS", *Find("lr_scheduler_type"),
                   "constant has no warm-up; say constant_with_warmup");
    }
    return absl::OkStatus();
  }

  absl::Status CheckData() const {
    const JobSpec& spec = draft_.spec;
    if (spec.validation_split > 0 && !spec.validation_dataset.empty()) {
      return BothGiven(*Find("validation_dataset"), *Find("validation_split"),
                       "where validation rows come from,");
    }
    if (spec.truncation == Truncation::kSplit &&
        spec.dataset_format != DatasetFormat::kAuto &&
        spec.dataset_format != DatasetFormat::kText) {
      return Error("CONFLICTING_FIELDS", *Find("truncation"),
                   "split is for dataset_format text alone");
    }
    return absl::OkStatus();
  }

  // What asks for evaluations has something to evaluate, and says how often.
  absl::Status CheckEvaluation() const {
    const JobSpec& spec = draft_.spec;
    const std::pair<const char*, bool> asked[] = {
        {"eval_steps", spec.eval_steps > 0},
        {"load_best_model_at_end", spec.load_best_model_at_end},
        {"early_stopping_patience", spec.early_stopping_patience > 0}};
    for (const auto& [name, on] : asked) {
      if (!on) continue;
      const bool prompts = name == std::string("eval_steps");
      if (!HasValidation(spec) && !(prompts && !spec.eval_prompts.empty())) {
        return Error("MISSING_FIELD", *Find(name),
                     prompts ? "needs a validation_dataset, a "
                               "validation_split or eval_prompts"
                             : "needs a validation_dataset or a "
                               "validation_split");
      }
      if (spec.eval_steps == 0) {
        return Error("MISSING_FIELD", *Find(name), "needs eval_steps");
      }
    }
    return absl::OkStatus();
  }

  const std::string& file_name_;
  SpecDraft draft_;
  std::map<std::string, Given> given_;  // By the vocabulary's name.
};

absl::StatusOr<JobSpec> ReadSpec(const std::string& text,
                                 const std::string& name, SpecWriter writer) {
  ASSIGN_OR_RETURN(const SpecValue root, ParseSpecText(text, name, writer));
  return Reader(name).Read(root);
}

}  // namespace

const char* TruncationName(Truncation truncation) {
  switch (truncation) {
    case Truncation::kRight:
      return "right";
    case Truncation::kLeft:
      return "left";
    case Truncation::kDrop:
      return "drop";
    case Truncation::kSplit:
      return "split";
  }
  return "right";
}

std::optional<Truncation> FindTruncation(const std::string& name) {
  for (const Truncation t : {Truncation::kRight, Truncation::kLeft,
                             Truncation::kDrop, Truncation::kSplit}) {
    if (name == TruncationName(t)) return t;
  }
  return std::nullopt;
}

const char* DatasetFormatName(DatasetFormat format) {
  switch (format) {
    case DatasetFormat::kAuto:
      return "auto";
    case DatasetFormat::kText:
      return "text";
    case DatasetFormat::kPromptCompletion:
      return "prompt_completion";
    case DatasetFormat::kMessages:
      return "messages";
    case DatasetFormat::kShareGpt:
      return "sharegpt";
    case DatasetFormat::kAlpaca:
      return "alpaca";
  }
  return "auto";
}

std::string DatasetFormatArgument(const JobSpec& spec) {
  return spec.dataset_format == DatasetFormat::kAuto
             ? ""
             : DatasetFormatName(spec.dataset_format);
}

std::string DatasetColumnsArgument(const JobSpec& spec) {
  if (spec.dataset_columns.empty()) return "";
  nlohmann::json columns;
  for (const auto& [ours, theirs] : spec.dataset_columns) {
    columns[ours] = theirs;
  }
  return columns.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsTemplateDate(const std::string& text) {
  absl::CivilDay day;
  // Written back, since the parser takes more forms than one.
  return text.size() == 10 && absl::ParseCivilTime(text, &day) &&
         absl::FormatCivilTime(day) == text;
}

std::string TemplateDateAt(absl::Time time) {
  return absl::FormatCivilTime(absl::ToCivilDay(time, absl::UTCTimeZone()));
}

AdapterConfig DefaultAdapter() {
  return {.rank = 8,
          .alpha = 8,
          .dropout = 0,
          .targets = 1u << LinearIndex(ParamRole::kQ) |
                     1u << LinearIndex(ParamRole::kV)};
}

const std::vector<SpecField>& JobSpecVocabulary() {
  static const auto* const fields = [] {
    auto* f = new std::vector<SpecField>;
    for (const SpecFieldRow& row : SpecFieldRows()) f->push_back(row.info);
    return f;
  }();
  return *fields;
}

absl::StatusOr<JobSpec> ParseJobSpec(const std::string& text,
                                     const std::string& file_name) {
  return ReadSpec(text, file_name.empty() ? "job file" : file_name,
                  SpecWriter::kCaller);
}

ResolvedSpec ResolvedSpec::Resolve(const JobSpec& spec, int device_count,
                                   Determinism usual) {
  ROUNDHOUSE_CHECK(device_count >= 1) << device_count;
  JobSpec out = spec;
  out.determinism = spec.determinism.value_or(usual);
  if (out.max_length == 0) out.max_length = kUsualMaxLength;
  if (!out.micro_batch_size.has_value()) {
    out.micro_batch_size = AutoMicroBatchSize(spec.batch_size, device_count);
  }
  if (!out.micro_batches_per_round.has_value()) {
    const int64_t all =
        (spec.batch_size + *out.micro_batch_size - 1) / *out.micro_batch_size;
    out.micro_batches_per_round = std::max(
        std::min(all, kAutoRoundMicroBatches), out.gradient_groups.value_or(1));
  }
  if (!out.gradient_groups.has_value()) {
    // An own plan says how wide it is, and then this field too.
    const int64_t widest = out.plan.has_value() ? 1 : device_count;
    out.gradient_groups = std::min(widest, *out.micro_batches_per_round);
  }
  if (out.method == Method::kLora) {
    const AdapterConfig usual = DefaultAdapter();
    out.lora_r = out.lora_r.value_or(usual.rank);
    out.lora_alpha = out.lora_alpha.value_or(usual.alpha);
    out.lora_dropout = out.lora_dropout.value_or(usual.dropout);
    out.target_modules = out.target_modules.value_or(usual.targets);
  }
  return ResolvedSpec(std::move(out));
}

AdapterConfig ResolvedSpec::adapter() const {
  if (spec_.method == Method::kFull) return {};
  return {.rank = *spec_.lora_r,
          .alpha = *spec_.lora_alpha,
          .dropout = *spec_.lora_dropout,
          .targets = *spec_.target_modules};
}

absl::StatusOr<ResolvedSpec> ResolvedSpec::FromJson(const std::string& json) {
  ASSIGN_OR_RETURN(JobSpec spec,
                   ReadSpec(json, "resolved spec", SpecWriter::kUs));
  if (!spec.micro_batch_size.has_value() ||
      !spec.micro_batches_per_round.has_value() ||
      !spec.gradient_groups.has_value()) {
    return FieldError("MISSING_FIELD", "micro_batch_size",
                      "resolved spec: micro_batch_size, "
                      "micro_batches_per_round and gradient_groups must be "
                      "numbers");
  }
  // What jobs were before they could choose.
  if (!spec.determinism.has_value()) spec.determinism = Determinism::kBitwise;
  if (spec.method == Method::kLora &&
      !(spec.lora_r.has_value() && spec.lora_alpha.has_value() &&
        spec.lora_dropout.has_value() && spec.target_modules.has_value())) {
    return FieldError("MISSING_FIELD", "lora_r",
                      "resolved spec: lora_r, lora_alpha, lora_dropout and "
                      "target_modules must be given");
  }
  return ResolvedSpec(std::move(spec));
}

std::string ResolvedSpec::ToJson() const {
  nlohmann::ordered_json out;
  for (const SpecFieldRow& row : SpecFieldRows()) {
    if (row.put != nullptr) row.put(spec_, &out);
  }
  // Paths may hold bytes that are not UTF-8.
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string NearestName(const std::string& name,
                        const std::vector<std::string>& names) {
  constexpr size_t kLongestCompared = 64;
  if (name.size() > kLongestCompared) return "";
  const int reach = std::max(2, static_cast<int>(name.size()) / 3);
  std::string nearest;
  int least = reach + 1;
  for (const std::string& candidate : names) {
    const int distance = EditDistance(name, candidate);
    if (distance >= least || distance >= static_cast<int>(candidate.size())) {
      continue;
    }
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace roundhouse
