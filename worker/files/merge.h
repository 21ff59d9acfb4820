// MergeRows (base/wire/commands.h): rows of base + scale * (B A) from files
// into a file.
//
// The sum over the rank runs in its order, in fp32, every product rounded: the
// same bits in any cut into rows.  Memory is bounded whatever the shapes are:
// A is taken kMergeElements of it at a time.
#ifndef ROUNDHOUSE_WORKER_FILES_MERGE_H_
#define ROUNDHOUSE_WORKER_FILES_MERGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/wire/messages.h"

namespace roundhouse::worker {

// fp32 values of A in memory at once.
inline constexpr uint64_t kMergeElements = uint64_t{4} << 20;

// base + scale * b a, dense.
struct ScaledProduct {
  const float* base = nullptr;  // [rows, columns]
  const float* a = nullptr;     // [rank, columns]
  const float* b = nullptr;     // [rows, rank]
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t rank = 0;
  float scale = 1;
};

// merged[i][j] = base[i][j] + scale * sum over k of b[i][k] a[k][j].  `merged`
// may be `base`; `sum` has room for a row.  Pure.
void AddProduct(const ScaledProduct& product, float* sum, float* merged);

// Whether `value`, rounded to `dtype`, is a finite number.
bool StaysFinite(float value, DType dtype);

// Does all of it, and returns the bytes written; with `sync` when they are on
// the disk.
// Repeatable: killed anywhere and done again, the file is the same.
//   INVALID_ARGUMENT  a file has another size than the command says, a matrix
//                     ends after its file, or a finite value of the base
//                     becomes one that the output's dtype can't hold (names
//                     row and column)
//   RESOURCE_EXHAUSTED  disk full
//   others as the system says, with the path
absl::StatusOr<uint64_t> DoMerge(const wire::MergeRows& merge);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_FILES_MERGE_H_
