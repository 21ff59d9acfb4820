#include "server/spec/model_limits.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/spec/spec.h"
#include "server/spec/spec_error.h"

namespace roundhouse {

absl::Status ModelError(const absl::Status& status) {
  // The disk or a shortage is at fault, not the model.
  if (absl::IsUnavailable(status) || absl::IsInternal(status)) return status;
  const bool unimplemented = absl::IsUnimplemented(status);
  const std::string message(status.message());
  // No file of a model is there at all.
  const char* const remedy = absl::EndsWith(message, "/config.json: not found")
                                 ? "; name the folder that has it"
                                 : "";
  return FieldError(
      unimplemented ? absl::StatusCode::kUnimplemented
                    : absl::StatusCode::kInvalidArgument,
      unimplemented ? FieldReason::kNotAvailable : FieldReason::kInvalidModel,
      "model_name_or_path", absl::StrCat(message, remedy));
}

absl::Status CheckMaxLength(int64_t max_length, const ModelConfig& model) {
  if (max_length <= model.max_position_tokens) return absl::OkStatus();
  return FieldError(
      FieldReason::kInvalidValue, "max_length",
      absl::StrCat(max_length, " tokens; the model allows ",
                   model.max_position_tokens,
                   " (max_position_embeddings of its config.json); write that "
                   "or less"));
}

int64_t UsualMaxLength(int64_t max_position_tokens) {
  return std::min(kUsualMaxLength, max_position_tokens);
}

}  // namespace roundhouse
