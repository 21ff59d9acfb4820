// What each layer of a job costs in time: measured where there are
// measurements, else in proportion to its parameters.
//
// Samples are per micro-batch.  EndStep turns those of one layer and pass into
// their mean; the first such mean is dropped (start-up noise), later ones enter
// an exponential moving average, 0.9 old and 0.1 new, divided by the weight
// already given out so that it starts unbiased (RoundPipe, arXiv 2604.27085).
//
// Cold values: forward and recompute one nanosecond per parameter byte,
// backward twice that.  Only their ratios mean anything, so cold and measured
// values never stand side by side: a pass is measured once every layer has an
// average of it, and cold for every layer until then; the training times
// (recompute and backward) turn together.
//
// Thread-compatible.  Deterministic in the order of calls.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_COST_MODEL_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_COST_MODEL_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {

enum class LayerPass {
  kForward,    // a forward slot, of training or of an evaluation
  kRecompute,  // forward inside a backward or fused slot
  kBackward,   // backpropagation alone, without the recompute
};
inline constexpr int kLayerPassCount = 3;

class CostModel {
 public:
  // One entry per layer.
  // REQUIRES: 1 to kMaxPlanLayers entries, each 1 to kMaxLayerParameterBytes.
  explicit CostModel(std::vector<int64_t> layer_parameter_bytes);

  // One micro-batch through one layer took `duration`.
  // INVALID_ARGUMENT, and nothing is recorded, for a layer that doesn't exist
  // or a duration outside 0..kMaxSample.
  absl::Status Observe(int layer, LayerPass pass, absl::Duration duration);

  // Ends the step: its samples enter the averages.  A layer and pass without a
  // sample in this step keeps its average.
  void EndStep();

  // Whether Forward, and whether Recompute and Backward, are measured.
  bool forward_measured() const;
  bool training_measured() const;

  // F and B of the planner, in whole nanoseconds, at least one.
  // REQUIRES: 0 <= layer < layer_count().
  absl::Duration Forward(int layer) const;    // F for inference
  absl::Duration Recompute(int layer) const;  // F for training
  absl::Duration Backward(int layer) const;   // B: recompute + backward

  int layer_count() const { return static_cast<int>(bytes_.size()); }

  static constexpr absl::Duration kMaxSample = absl::Hours(1);
  static constexpr int64_t kMaxLayerParameterBytes = int64_t{1} << 44;

 private:
  struct Average {
    // Samples of the running step.
    absl::Duration sum;
    int64_t sample_count = 0;
    // Samples of the steps before it.
    bool first_dropped = false;
    double weighted_ns = 0;
    double missing_weight = 1;

    bool measured() const { return missing_weight < 1; }
    double nanoseconds() const { return weighted_ns / (1 - missing_weight); }
    void EndStep();
  };

  const Average& average(int layer, LayerPass pass) const;
  bool Measured(LayerPass pass) const;
  double ColdNanoseconds(int layer, LayerPass pass) const;
  double Nanoseconds(int layer, LayerPass pass, bool measured) const;
  absl::Status CheckSample(int layer, absl::Duration duration) const;
  void Record(int layer, LayerPass pass, absl::Duration duration);

  std::vector<int64_t> bytes_;
  std::vector<std::array<Average, kLayerPassCount>> averages_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_COST_MODEL_H_
