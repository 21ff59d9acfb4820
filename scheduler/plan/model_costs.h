// What one micro-batch of a model costs on a device and on its links, and the
// reader of the files that say so (scheduler/testdata/bubble_inputs.csv).
//
// Layers 0..layers-1 are decoder blocks, layer `layers` is the LM head.  The
// embedding costs a device nothing: it is gathered in host memory.
//
// Times are whole nanoseconds: sums of them don't depend on their order, so
// equal times are exactly equal and a schedule is the same on every machine.
// Bytes are decimal (1 GB = 1e9).
//
// Pure values and functions; thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_MODEL_COSTS_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_MODEL_COSTS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace roundhouse {

// At which published hops were measured, in bytes.
inline constexpr int64_t kHopBytesPerNs = 21;

struct ModelCosts {
  std::string name;
  int layers = 0;  // decoder blocks

  // One micro-batch.  Recomputing a block takes its forward time; the head is
  // never recomputed.
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;  // without the recompute
  int64_t head_forward_ns = 0;
  int64_t head_backward_ns = 0;
  // From one device to another, under the published rules.
  int64_t hop_ns = 0;

  int64_t layer_bytes = 0;  // weights as they cross a link, bf16
  int64_t head_bytes = 0;
  int64_t layer_gradient_bytes = 0;  // bf16; 0 where nothing trains
  int64_t head_gradient_bytes = 0;

  // The embedding's, at 2 bytes a parameter, whose reductions and updates the
  // host makes; 0: they take no time, as in the published inputs.
  int64_t embedding_gradient_bytes = 0;
  // The head's matrix is the embedding's: the head's contributions are reduced
  // and updated as the embedding's.
  bool tied_head = false;

  int64_t element_bytes = 2;  // of weights and activations on a device
  int64_t tokens = 0;         // of a micro-batch
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t inner = 0;  // MLP or expert inner width
  int64_t experts_per_token = 0;

  int head() const { return layers; }
  int64_t ForwardNs(int layer) const {
    return layer == layers ? head_forward_ns : forward_ns;
  }
  int64_t RecomputeNs(int layer) const {
    return layer == layers ? 0 : forward_ns;
  }
  int64_t BackwardNs(int layer) const {
    return layer == layers ? head_backward_ns : backward_ns;
  }
  int64_t WeightBytes(int layer) const {
    return layer == layers ? head_bytes : layer_bytes;
  }
  int64_t GradientBytes(int layer) const {
    return layer == layers ? head_gradient_bytes : layer_gradient_bytes;
  }
  // What crosses a boundary between two layers, in one direction.
  int64_t BoundaryBytes() const { return hop_ns * kHopBytesPerNs; }

  // Over layers first to last, of a function that is the same for all blocks.
  template <typename OfLayer>
  int64_t Sum(int first, int last, const OfLayer& of_layer) const {
    const int64_t blocks = std::min(last + 1, layers) - first;
    return (blocks > 0 ? blocks * of_layer(first) : int64_t{0}) +
           (last == layers ? of_layer(last) : int64_t{0});
  }

  // Forward, recompute and backward of every layer: one micro-batch's work.
  int64_t MicroBatchNs() const {
    return layers * (2 * forward_ns + backward_ns) + head_forward_ns +
           head_backward_ns;
  }
};

inline constexpr int kMaxModels = 1000;

// Lines that begin with '#' and empty lines are skipped; the first other line
// names the columns, all of which must be there once, in any order.
// INVALID_ARGUMENT naming `file`, the line and the column that is wrong.
absl::StatusOr<std::vector<ModelCosts>> ParseModelCosts(absl::string_view file,
                                                        absl::string_view text);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_MODEL_COSTS_H_
