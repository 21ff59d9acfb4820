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

// What one decoder block costs, where those of a model differ; as ModelCosts
// says, whose ActiveInner is active_inner.
struct BlockCosts {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;
  int64_t bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t active_inner = 0;

  bool operator==(const BlockCosts&) const = default;
};

struct ModelCosts {
  std::string name;
  int layers = 0;  // decoder blocks
  // What each block costs, where they are not all alike: what follows is then
  // their mean.  Empty: it is every block's.
  std::vector<BlockCosts> blocks;

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
  int64_t inner = 0;  // of an MLP or one expert; with `blocks` ActiveInner
  int64_t experts_per_token = 0;

  int head() const { return layers; }
  // Sets what is of blocks: `blocks` only where they differ, and the rest as
  // their mean.  REQUIRES: one for each layer.
  void SetBlocks(std::vector<BlockCosts> of_layers);

  bool alike() const { return blocks.empty(); }
  int64_t ForwardNs(int layer) const {
    if (layer == layers) return head_forward_ns;
    return Of(layer, forward_ns, &BlockCosts::forward_ns);
  }
  int64_t RecomputeNs(int layer) const {
    return layer == layers ? 0 : ForwardNs(layer);
  }
  int64_t BackwardNs(int layer) const {
    if (layer == layers) return head_backward_ns;
    return Of(layer, backward_ns, &BlockCosts::backward_ns);
  }
  int64_t WeightBytes(int layer) const {
    if (layer == layers) return head_bytes;
    return Of(layer, layer_bytes, &BlockCosts::bytes);
  }
  int64_t GradientBytes(int layer) const {
    if (layer == layers) return head_gradient_bytes;
    return Of(layer, layer_gradient_bytes, &BlockCosts::gradient_bytes);
  }
  // What a token goes through in a block: inner widths.
  int64_t ActiveInner(int layer) const {
    return Of(layer, inner * experts_per_token, &BlockCosts::active_inner);
  }
  // What crosses a boundary between two layers, in one direction.
  int64_t BoundaryBytes() const { return hop_ns * kHopBytesPerNs; }

  // Over layers first to last, of a function that is the same for equal blocks.
  template <typename OfLayer>
  int64_t Sum(int first, int last, const OfLayer& of_layer) const {
    const int end = std::min(last + 1, layers);
    int64_t sum = last == layers ? of_layer(last) : int64_t{0};
    if (alike()) return sum + std::max(0, end - first) * of_layer(first);
    for (int layer = first; layer < end; ++layer) sum += of_layer(layer);
    return sum;
  }
  // The most of them.
  template <typename OfLayer>
  int64_t Most(int first, int last, const OfLayer& of_layer) const {
    int64_t most = std::max(of_layer(first), of_layer(last));
    for (int layer = first + 1; layer < last && !alike(); ++layer) {
      most = std::max(most, of_layer(layer));
    }
    return most;
  }

  // Forward, recompute and backward of every layer: one micro-batch's work.
  int64_t MicroBatchNs() const {
    return Sum(0, layers, [this](int layer) {
      return ForwardNs(layer) + RecomputeNs(layer) + BackwardNs(layer);
    });
  }

  // A block's own, or every block's.
  int64_t Of(int layer, int64_t usual, int64_t BlockCosts::*own) const {
    return alike() ? usual : blocks[layer].*own;
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
