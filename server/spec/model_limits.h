// What a model's directory says of fields that a job and a look at a dataset
// have in common.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_SPEC_MODEL_LIMITS_H_
#define ROUNDHOUSE_SERVER_SPEC_MODEL_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/model/config.h"

namespace roundhouse {

// A model's own error, with the field that named the model: UNIMPLEMENTED
// stays, all others become INVALID_ARGUMENT.
absl::Status ModelError(const absl::Status& status);

// INVALID_ARGUMENT naming both numbers where rows of `max_length` tokens, of
// one sequence or packed, are longer than the model allows.
absl::Status CheckMaxLength(int64_t max_length, const ModelConfig& model);

// The tokens of a row where nobody said so, of a model with so many positions.
int64_t UsualMaxLength(int64_t max_position_tokens);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SPEC_MODEL_LIMITS_H_
