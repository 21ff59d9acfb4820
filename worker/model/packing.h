// Which tokens of a micro-batch's rows are one sequence.
#ifndef ROUNDHOUSE_WORKER_MODEL_PACKING_H_
#define ROUNDHOUSE_WORKER_MODEL_PACKING_H_

#include <cstdint>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/statusor.h"

namespace roundhouse::worker {

struct Packing {
  // Tokens of each sequence, row after row, each within one row and all tokens
  // of each row covered.  Empty: every row is one sequence.
  std::vector<int64_t> sequence_tokens;
  // [sequences + 1] int32 on the rows' device: where each begins among all
  // tokens, and the number of tokens.  Undefined where every row is one.
  at::Tensor starts = {};

  bool packs() const { return !sequence_tokens.empty(); }
};

// Without `starts`.  `positions` is [rows, row_tokens], a token's position
// within its sequence.  INVALID_ARGUMENT, naming row and token, unless each row
// starts with 0 and every other value is 0 or one more than the value before
// it.
absl::StatusOr<Packing> ReadPacking(const int32_t* positions, int64_t rows,
                                    int64_t row_tokens);

// `starts` on the host.
at::Tensor SequenceStarts(const Packing& packing);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_PACKING_H_
