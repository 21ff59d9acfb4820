#include "server/spec/spec.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/auto_sizes.h"
#include "server/spec/job_file.h"
#include "server/spec/job_file_reader.h"
#include "server/spec/spec_error.h"
#include "server/spec/spec_fields.h"
#include "server/spec/spec_rows.h"
#include "server/spec/spec_value.h"

namespace roundhouse {
namespace {

// The columns of all formats (rows/formats.py's; a test compares them).
constexpr const char* kColumns[] = {"chat_template_kwargs",
                                    "completion",
                                    "conversations",
                                    "history",
                                    "input",
                                    "instruction",
                                    "messages",
                                    "output",
                                    "parallel_tool_calls",
                                    "prompt",
                                    "system",
                                    "text",
                                    "tools"};

}  // namespace

std::optional<int> FindSavedInputs(const std::string& text) {
  if (text == "auto") return 0;
  if (text == "all") return 1;
  constexpr absl::string_view kEvery = "every ";
  int every = 0;
  if (absl::StartsWith(text, kEvery) && text.size() <= kEvery.size() + 2 &&
      absl::SimpleAtoi(text.substr(kEvery.size()), &every) && every >= 2 &&
      every <= kMostSavedEvery && text == SavedInputsText(every)) {
    return every;
  }
  return std::nullopt;
}

std::string SavedInputsText(int every) {
  return every == 0   ? "auto"
         : every == 1 ? "all"
                      : absl::StrCat("every ", every);
}

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

std::optional<DatasetFormat> FindDatasetFormat(const std::string& name) {
  using F = DatasetFormat;
  for (const F f : {F::kAuto, F::kText, F::kPromptCompletion, F::kMessages,
                    F::kShareGpt, F::kAlpaca}) {
    if (name == DatasetFormatName(f)) return f;
  }
  return std::nullopt;
}

const std::vector<std::string>& DatasetColumnNames() {
  static const auto* const names =
      new std::vector<std::string>(std::begin(kColumns), std::end(kColumns));
  return *names;
}

std::string DatasetFormatArgument(DatasetFormat format) {
  return format == DatasetFormat::kAuto ? "" : DatasetFormatName(format);
}

std::string DatasetColumnsArgument(const DatasetColumns& columns) {
  if (columns.empty()) return "";
  nlohmann::json json;
  for (const auto& [ours, theirs] : columns) json[ours] = theirs;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
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
  ASSIGN_OR_RETURN(JobFile file, ReadJobFile(text, file_name));
  RETURN_IF_ERROR(file.status());
  return std::move(file.spec());
}

ResolvedSpec ResolvedSpec::Resolve(const JobSpec& spec, int device_count,
                                   const SpecDefaults& defaults) {
  ROUNDHOUSE_CHECK(device_count >= 1) << device_count;
  JobSpec out = spec;
  out.determinism = spec.determinism.value_or(defaults.determinism);
  out.max_length = spec.max_length.value_or(defaults.max_length);
  out.dtype = spec.dtype.value_or(defaults.dtype);
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
  if (out.method == TrainingMethod::kLora) {
    const AdapterConfig usual = DefaultAdapter();
    out.lora_r = out.lora_r.value_or(usual.rank);
    out.lora_alpha = out.lora_alpha.value_or(usual.alpha);
    out.lora_dropout = out.lora_dropout.value_or(usual.dropout);
    out.target_modules = out.target_modules.value_or(usual.targets);
  }
  return ResolvedSpec(std::move(out));
}

AdapterConfig ResolvedSpec::adapter() const {
  if (spec_.method == TrainingMethod::kFull) return {};
  return {.rank = *spec_.lora_r,
          .alpha = *spec_.lora_alpha,
          .dropout = *spec_.lora_dropout,
          .targets = *spec_.target_modules};
}

absl::StatusOr<ResolvedSpec> ResolvedSpec::FromJson(const std::string& json) {
  ASSIGN_OR_RETURN(JobFile file,
                   ReadJobText(json, "resolved spec", SpecWriter::kUs));
  RETURN_IF_ERROR(file.status());
  JobSpec spec = std::move(file.spec());
  if (!spec.micro_batch_size.has_value() ||
      !spec.micro_batches_per_round.has_value() ||
      !spec.gradient_groups.has_value()) {
    return RequestError(FieldReason::kMissingField, "micro_batch_size",
                        "resolved spec: micro_batch_size, "
                        "micro_batches_per_round and gradient_groups must be "
                        "numbers");
  }
  // What jobs were before they could choose.
  if (!spec.determinism.has_value()) spec.determinism = Determinism::kBitwise;
  // Always written; read as what was the default then.
  spec.max_length = spec.max_length.value_or(kUsualMaxLength);
  spec.dtype = spec.dtype.value_or(DType::kF32);
  if (spec.method == TrainingMethod::kLora &&
      !(spec.lora_r.has_value() && spec.lora_alpha.has_value() &&
        spec.lora_dropout.has_value() && spec.target_modules.has_value())) {
    return RequestError(FieldReason::kMissingField, "lora_r",
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

}  // namespace roundhouse
