// How the keys and values of one sequence lie in memory while it is generated:
//
//   [layer][keys, values][token][kv_heads * head_dim]
//
// in the model's dtype; each [token][...] is a *plane* that starts at a
// multiple of 64 bytes.  Pure; Torch-free.
#ifndef ROUNDHOUSE_WORKER_MODEL_KEY_VALUE_LAYOUT_H_
#define ROUNDHOUSE_WORKER_MODEL_KEY_VALUE_LAYOUT_H_

#include <cstdint>

#include "base/dtype.h"
#include "base/model/config.h"

namespace roundhouse::worker {

struct KeyValueLayout {
  // REQUIRES: capacity_tokens >= 0.
  KeyValueLayout(const ModelConfig& config, DType dtype,
                 int64_t capacity_tokens)
      : plane_count(static_cast<uint64_t>(config.layer_count) * 2),
        token_bytes(static_cast<uint64_t>(config.kv_head_count) *
                    static_cast<uint64_t>(config.head_dim) * DTypeBytes(dtype)),
        plane_bytes(
            (token_bytes * static_cast<uint64_t>(capacity_tokens) + 63) / 64 *
            64) {}

  uint64_t total_bytes() const { return plane_count * plane_bytes; }
  uint64_t keys_offset(int64_t layer) const {
    return static_cast<uint64_t>(layer) * 2 * plane_bytes;
  }
  uint64_t values_offset(int64_t layer) const {
    return keys_offset(layer) + plane_bytes;
  }

  uint64_t plane_count;
  uint64_t token_bytes;  // of one plane
  uint64_t plane_bytes;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_KEY_VALUE_LAYOUT_H_
