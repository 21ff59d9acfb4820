// One part on its device, as the simulator of a step sees it: what it computes
// next, once what it needs is there.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_PART_RUN_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_PART_RUN_H_

#include <optional>
#include <set>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

// A tensor at a boundary: the input of layer `layer`, as it was first written
// or again, or its gradient.
struct Boundary {
  int layer = 0;
  PassDirection direction = PassDirection::kForward;
  int micro_batch = 0;

  friend bool operator==(const Boundary&, const Boundary&) = default;
};

// What forward slots write for backward slots.
struct SavedInputs {
  std::vector<int> begins;  // first layers of backward stages, ascending
  std::vector<int> kept;    // of those: from the forward pass
  std::set<int> again;      // boundaries that are written again
};
SavedInputs SavedInputsOf(const std::vector<Part>& parts);

class PartRun {
 public:
  struct Op {
    WorkKind kind = WorkKind::kForward;
    int begin = 0;  // layers, end exclusive
    int end = 0;
  };

  // Whose it is, among all parts of a simulation.
  struct Place {
    int job = 0;
    int number = 0;  // of the part
    int attempt = 0;
  };

  // What of `saved` lies inside a forward part is sent down on the way.  All
  // must outlive it.
  PartRun(const Part& part, const ModelCosts& costs, const SavedInputs& saved,
          FusedSlots fused, const Place& place);

  const Part& part() const { return part_; }
  const Place& place() const { return place_; }
  // A lap is one micro-batch of the part.
  int lap_count() const { return static_cast<int>(part_.micro_batches.size()); }
  int lap() const { return lap_; }
  bool finished() const { return lap_ == lap_count(); }
  int micro_batch(int lap) const {
    return static_cast<int>(part_.micro_batches.begin) + lap;
  }

  // What each lap uploads, in the order in which it is needed.
  absl::InlinedVector<Boundary, 2> Inputs(int lap) const;
  void InputArrived(int lap, PassDirection direction);
  // The layer whose weights are all that it waits for; none: it does not wait,
  // or for something else.
  std::optional<int> AwaitedWeights() const;
  // The first layer can be computed for the first micro-batch.
  bool ready() const { return input_[0] && first_weights(); }
  void WeightsArrived(int layer);
  bool first_weights() const { return weights_there_[0]; }  // its layer's
  bool all_weights() const { return weights_ == part_.layers.layer_count(); }
  // Sums of a part before are down: this one's may be made.
  void AllowSums() { sums_allowed_ = true; }
  bool sums_allowed() const { return sums_allowed_; }

  // What can be computed now; as many layers as have their weights.
  std::optional<Op> Next() const;
  // One layer of it, as far as it can be cut.
  std::optional<Op> NextLayer() const;

  struct Results {
    absl::InlinedVector<Boundary, 1> down;  // to be sent down
    absl::InlinedVector<int, 4> gradients;  // layers whose sums are complete
    bool lap_done = false;
  };
  // REQUIRES: `op` came from Next.
  Results Finish(const Op& op);

 private:
  std::optional<Op> NextForward(WorkKind kind) const;
  std::optional<Op> NextFused() const;
  std::optional<Op> NextFusedLayers() const;
  std::optional<Op> NextBackward() const;
  bool LastLap() const { return lap_ + 1 == lap_count(); }
  // What the part sends down where it goes forward.
  const std::vector<int>& Saved() const {
    return part_.again ? saved_.begins : saved_.kept;
  }
  bool HeadOnly() const { return part_.layers.first == costs_.head(); }
  void FinishForward(const Op& op, Results& results);
  void FinishBackward(const Op& op, Results& results);
  void EndLap(Results& results);

  const Part& part_;
  const ModelCosts& costs_;
  const SavedInputs& saved_;
  const FusedSlots fused_;
  const Place place_;
  // There, per lap, and per layer of the part.
  absl::InlinedVector<bool, 16> input_, gradient_, weights_there_;
  int weights_ = 0;  // layers from the first, all there
  bool sums_allowed_ = false;
  int lap_ = 0;
  bool backpropagates_ = false;  // this lap's recompute (head forward) is done
  int next_;                     // layer; going down: one above it
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_PART_RUN_H_
