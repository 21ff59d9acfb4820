// Causal attention of a micro-batch: over whole rows, or over the sequences
// that are packed into them, with or without a sliding window; and of sequences
// that go on from cached keys and values.
//
// What has the same bits as what, for the same q, k and v of a sequence:
//   rows of one sequence each   SDPA over all rows at once, packing or not
//   a packed sequence           SDPA over that sequence alone, so the bits of a
//                               row that holds it without padding; they may
//                               differ where a token's heads are no multiple of
//                               64 bytes, because then tensors lie differently
//   a window not below the
//   sequence's length           no window
// But for a GPU's bf16 and fp16: one kernel takes all sequences and windows
// there (flash_attention.h), and has bits of its own.
// In a whole model a packed sequence equals an unpacked one closely, not
// bitwise: matrix products of another number of rows may add in another order.
#ifndef ROUNDHOUSE_WORKER_MODEL_ATTENTION_H_
#define ROUNDHOUSE_WORKER_MODEL_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "ATen/ATen.h"
#include "worker/model/packing.h"

namespace roundhouse::worker {

// q is [rows, heads, row_tokens, head_dim], k and v have kv_heads.  A token
// attends to itself and to those before it in its sequence, with a window above
// 0 to itself and the window - 1 before it.
// Returns [rows * row_tokens, heads * head_dim].
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, const Packing& packing,
                           int64_t window);

// Keys or values, [b, kv_heads, m, d], for each of the heads that share them,
// which are neighbours: [b, heads, m, d].
at::Tensor ForEachHead(const at::Tensor& x, int64_t heads);

// One layer's keys and values of sequences that are being generated.
struct KeyValueCache {
  struct Sequence {
    at::Tensor keys;    // [capacity, kv_heads, head_dim]
    at::Tensor values;  // likewise
    int64_t cached_tokens = 0;
    int64_t new_tokens = 0;  // at least 1; they fit behind the cached ones
  };
  std::vector<Sequence> sequences;
};

// q is [1, heads, n, head_dim], k and v have kv_heads; n is the sum of the
// sequences' new tokens, one sequence after the other.  Writes k and v behind
// each sequence's cached ones, where they stay for the next call, and attends
// as CausalAttention does, sequence by sequence: none depends on another.
// Without cached tokens it is CausalAttention of packed sequences, bit for bit
// where no kernel takes those at once.
// Returns [n, heads * head_dim].
at::Tensor CachedAttention(const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, const KeyValueCache& cache,
                           int64_t window);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_ATTENTION_H_
