#include "server/planning/plan_question.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/limits.h"
#include "base/model/input_file.h"
#include "base/model/model_shape.h"
#include "base/model/parameters.h"
#include "base/status.h"
#include "server/spec/model_limits.h"
#include "server/spec/spec.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr int64_t kMaxBatchSequences = 1 << 20;

absl::Status Invalid(const char* field, absl::string_view message) {
  return FieldError(FieldReason::kInvalidValue, field, message);
}

// Within 1..most; 0: `otherwise`.
absl::StatusOr<int64_t> Count(const char* field, int64_t given,
                              int64_t otherwise, int64_t most) {
  if (given == 0) return otherwise;
  if (given >= 1 && given <= most) return given;
  return Invalid(field,
                 absl::StrCat(given, " is not a number from 1 to ", most));
}

absl::StatusOr<ModelShape> ReadModel(const std::string& name,
                                     const FileOpener& files,
                                     const PathResolver& resolve) {
  if (name.empty()) {
    return FieldError(FieldReason::kMissingField, "model", "is missing");
  }
  const bool file = absl::EndsWith(name, ".json");
  ASSIGN_OR_RETURN(
      std::string path,
      resolve("model", name, file ? PathKind::kFile : PathKind::kModelConfig));
  if (!file) path += "/config.json";
  const auto text = ReadWholeFile(files, path, kMaxConfigBytes);
  if (!text.ok()) {
    return FieldError(absl::IsNotFound(text.status())
                          ? FieldReason::kPathNotFound
                          : FieldReason::kInvalidModel,
                      "model", text.status().message());
  }
  const auto shape = ParseModelShape(*text, path);
  if (shape.ok()) return shape;
  return RequestError(shape.status().code(), FieldReason::kInvalidModel,
                      "model", std::string(shape.status().message()));
}

absl::Status ReadMethod(const PlanQuestion& question, TrainingSetup* setup) {
  if (question.method == "lora") {
    setup->method = TrainingMethod::kLora;
  } else if (!question.method.empty() && question.method != "full") {
    return Invalid("method", absl::StrCat("\"", question.method,
                                          "\" is neither full nor lora"));
  } else if (question.lora_r != 0 || !question.target_modules.empty()) {
    const char* const field =
        question.lora_r != 0 ? "lora_r" : "target_modules";
    return FieldError(FieldReason::kConflictingFields, field,
                      "needs method lora");
  }
  const AdapterConfig usual = DefaultAdapter();
  ASSIGN_OR_RETURN(setup->lora_rank, Count("lora_r", question.lora_r,
                                           usual.rank, kMaxAdapterRank));
  setup->lora_targets = usual.targets;
  if (!question.target_modules.empty()) setup->lora_targets = 0;
  for (const std::string& module : question.target_modules) {
    const uint32_t bits = module == "all-linear"
                              ? *TargetsOf(kAllLinear, setup->shape.mixture())
                              : TargetModuleBit(module);
    if (bits == 0) {
      return Invalid("target_modules",
                     absl::StrCat("\"", module,
                                  "\" is none of all-linear, "
                                  "q_proj, k_proj, v_proj, o_proj, gate_proj, "
                                  "up_proj, down_proj"));
    }
    setup->lora_targets |= bits;
  }
  const auto targets = TargetsOf(setup->lora_targets, setup->shape.mixture());
  if (!targets.ok()) {
    return Invalid("target_modules", std::string(targets.status().message()));
  }
  return absl::OkStatus();
}

absl::Status ReadDeterminism(const PlanQuestion& question,
                             TrainingSetup* setup) {
  const std::string& word = question.determinism;
  if (!word.empty() && word != "fast" && word != "bitwise") {
    return Invalid("determinism", absl::StrCat("\"", word,
                                               "\" is neither bitwise nor "
                                               "fast"));
  }
  setup->contributions =
      word == "bitwise" ? Contributions::kFp32 : Contributions::kModelDtype;
  return absl::OkStatus();
}

absl::Status ReadSavedInputs(const PlanQuestion& question,
                             TrainingSetup* setup) {
  const std::string& text = question.saved_inputs;
  const auto every = text.empty() ? 0 : FindSavedInputs(text);
  if (!every.has_value()) {
    return Invalid("saved_inputs", absl::StrCat("\"", text, "\" is none of ",
                                                kSavedInputsWords));
  }
  setup->saved_every = *every;
  return absl::OkStatus();
}

absl::Status ReadClipping(const PlanQuestion& question, TrainingSetup* setup) {
  const double norm = question.max_grad_norm.value_or(JobSpec().max_grad_norm);
  // As in a job file; no NaN either.
  if (!(norm >= 0) || std::isinf(norm)) {
    return Invalid("max_grad_norm",
                   absl::StrCat(norm, " is not a number from 0"));
  }
  setup->clips = norm > 0;
  return absl::OkStatus();
}

absl::Status ReadLengths(const PlanQuestion& question,
                         ForecastQuestion* forecast) {
  TrainingSetup& setup = forecast->setup;
  const JobSpec defaults;
  // One that is asked for may be beyond what the model allows, to see what it
  // would take.
  ASSIGN_OR_RETURN(setup.sequence_tokens,
                   Count("max_length", question.max_length,
                         UsualMaxLength(setup.shape.max_position_tokens),
                         kMaxSearchedTokens));
  ASSIGN_OR_RETURN(forecast->batch_sequences,
                   Count("batch_size", question.batch_size, defaults.batch_size,
                         kMaxBatchSequences));
  ASSIGN_OR_RETURN(setup.micro_batch_sequences,
                   Count("micro_batch_size", question.micro_batch_size, 0,
                         forecast->batch_sequences));
  const std::string& recompute = question.gradient_checkpointing;
  setup.layer_recompute = recompute == "layer";
  if (recompute.empty() || recompute == "auto" || recompute == "stage" ||
      setup.layer_recompute) {
    return absl::OkStatus();
  }
  return Invalid(
      "gradient_checkpointing",
      absl::StrCat("\"", recompute, "\" is none of auto, stage, layer"));
}

absl::Status ReadMachine(const PlanQuestion& question,
                         ForecastQuestion* forecast) {
  if (question.devices.empty()) {
    return FieldError(FieldReason::kMissingField, "devices", "is missing");
  }
  auto devices = ParsePresets(question.devices);
  if (!devices.ok()) return Invalid("devices", devices.status().message());
  forecast->devices = *std::move(devices);
  if (question.host_memory_bytes < 0) {
    return Invalid("host_memory_bytes",
                   absl::StrCat(question.host_memory_bytes, " is below 0"));
  }
  forecast->host_memory_bytes = question.host_memory_bytes;
  if (question.host_bandwidth != 0) {
    forecast->host_rate = question.host_bandwidth;
  }
  forecast->accumulation =
      question.fp16_accumulation ? Accumulation::kFp16 : Accumulation::kFp32;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ForecastQuestion> ReadPlanQuestion(const PlanQuestion& question,
                                                  const FileOpener& files,
                                                  const PathResolver& resolve) {
  ForecastQuestion forecast;
  RETURN_IF_ERROR(ReadMachine(question, &forecast));
  RETURN_IF_ERROR(ReadDeterminism(question, &forecast.setup));
  RETURN_IF_ERROR(ReadSavedInputs(question, &forecast.setup));
  RETURN_IF_ERROR(ReadClipping(question, &forecast.setup));
  ASSIGN_OR_RETURN(forecast.setup.shape,
                   ReadModel(question.model, files, resolve));
  RETURN_IF_ERROR(ReadMethod(question, &forecast.setup));
  RETURN_IF_ERROR(ReadLengths(question, &forecast));
  return forecast;
}

}  // namespace roundhouse
