// What each layer of a model costs in time, per micro-batch, as a CSV file
// says:
//
//   layer,forward_ms,recompute_ms,backward_ms
//   0,7.429,7.429,15.831
//   1,7.429,7.429,15.831
//   2,22.0655,0,43.707
//
// One line a layer, in order from 0; the last is the head.  A line that begins
// with # says nothing.  Pure.
//
//   forward_ms    in a forward slot or an evaluation; of the head: its loss
//   recompute_ms  a decoder layer's forward inside a backward or fused slot;
//                 0 for the head
//   backward_ms   without the forward before it
#ifndef ROUNDHOUSE_TESTS_FAKES_LAYER_COSTS_H_
#define ROUNDHOUSE_TESTS_FAKES_LAYER_COSTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roundhouse::fakes {

struct LayerCost {
  int64_t forward_ns = 0;
  int64_t recompute_ns = 0;
  int64_t backward_ns = 0;

  bool operator==(const LayerCost&) const = default;
};

// A layer takes an hour at most.
inline constexpr double kMaxLayerMs = 3.6e6;

// The decoder layers' costs times `scale`, then the head's; at least two
// entries.  INVALID_ARGUMENT naming `path`, the line and the field.
absl::StatusOr<std::vector<LayerCost>> ParseLayerCosts(const std::string& text,
                                                       const std::string& path,
                                                       double scale);

// The same from the file.  NOT_FOUND: it cannot be read.
absl::StatusOr<std::vector<LayerCost>> ReadLayerCosts(const std::string& path,
                                                      double scale);

}  // namespace roundhouse::fakes

#endif  // ROUNDHOUSE_TESTS_FAKES_LAYER_COSTS_H_
