// The embedding's gradient of one round: which token positions add into which
// vocabulary row, in the job's order (docs/design/numerics.md).
//
// Built once per operation by a counting sort over all tokens, then read by
// many threads at once.  8 bytes per token and 8 per vocabulary row.
#ifndef ROUNDHOUSE_WORKER_HOST_EMBEDDING_ROWS_H_
#define ROUNDHOUSE_WORKER_HOST_EMBEDDING_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"
#include "worker/host/tree_program.h"

namespace roundhouse::worker {

// A micro-batch's tokens and [positions, hidden] data, checked.
struct TokenBatch {
  uint32_t group = 0;
  uint64_t positions = 0;  // rows * row_tokens
  const int32_t* tokens = nullptr;
  std::byte* data = nullptr;
};

// INVALID_ARGUMENT naming the micro-batch and the position: buffers that don't
// fit the shape, a token that is not below `vocab`.
absl::StatusOr<TokenBatch> CheckTokenBatch(wire::Arena& arena,
                                           const wire::HostMicroBatch& batch,
                                           size_t index, uint64_t vocab,
                                           uint64_t hidden, DType dtype);

class EmbeddingRows {
 public:
  // Scratch of one calling thread: `depth()` rows.
  using Stack = std::vector<std::vector<float>>;

  // `batches` in micro-batch order, so groups ascend.  INVALID_ARGUMENT: they
  // don't, or a group is not below total_groups.
  static absl::StatusOr<EmbeddingRows> Make(std::vector<TokenBatch> batches,
                                            uint32_t total_groups,
                                            uint64_t vocab, uint64_t hidden,
                                            DType dtype);

  uint64_t hidden() const { return hidden_; }
  bool Has(uint64_t row) const { return starts_[row] != starts_[row + 1]; }
  Stack MakeStack() const;

  // Columns [column, column + count) of `row`'s sum over all groups: within a
  // group in (micro-batch, token) order, the first addend copied; groups up the
  // fixed tree, an absent one being the identity.
  // REQUIRES: Has(row), column + count <= hidden().
  void Sum(uint64_t row, uint64_t column, uint64_t count, Stack& stack,
           float* sum) const;

 private:
  struct Place {
    uint32_t batch = 0;
    uint32_t position = 0;
  };

  EmbeddingRows() = default;
  void IndexTokens(uint64_t vocab);
  // Adds up the places from `place` on that lie in `group`; returns the first
  // that doesn't.
  uint64_t SumGroup(uint64_t place, uint64_t end, uint32_t group,
                    uint64_t column, uint64_t count, float* sum) const;

  std::vector<TokenBatch> batches_;
  std::vector<uint64_t> starts_;  // per row, into places_; one more at the end
  std::vector<Place> places_;
  TreeProgram program_;  // over groups
  uint64_t hidden_ = 0;
  DType dtype_ = DType::kF32;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_HOST_EMBEDDING_ROWS_H_
