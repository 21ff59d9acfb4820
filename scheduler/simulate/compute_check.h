// Rules 1 to 4 of checker.h: what holds of a schedule's compute, whichever way
// data crosses between devices.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_COMPUTE_CHECK_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_COMPUTE_CHECK_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/simulate/checker.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

// FAILED_PRECONDITION with the interval and `why`.
absl::Status Violation(const Interval& interval, absl::string_view why);

// How a tensor at a boundary gets from the interval that made it to the one
// that uses it.
class Delivery {
 public:
  struct Request {
    const Interval* producer = nullptr;  // null: it lies in host memory
    const Interval* consumer = nullptr;
    int boundary = 0;  // the layer whose input (or its gradient) it is
    PassDirection direction = PassDirection::kForward;
    // Both lie in one part, so that it never leaves the device.
    bool same_part = false;
    // How many other parts upload the same tensor to the consumer's device
    // before it: a forward part, one that runs again, the backward part.
    int other_uses = 0;
  };

  virtual ~Delivery() = default;
  // When it is on the consumer's device; a violation if it never gets there.
  virtual absl::StatusOr<int64_t> Arrival(const Request& request) const = 0;
};

class ComputeCheck {
 public:
  // All arguments must outlive it.
  ComputeCheck(const Schedule& schedule, const ModelCosts& costs,
               const CheckOptions& options);

  // Rules 1 and 3; to be called first.
  absl::Status CheckCoverage();
  // Rule 2, also of links and host.
  absl::Status CheckOverlap();
  // Rule 4.  REQUIRES: CheckCoverage and CheckOverlap were OK.
  absl::Status CheckDependencies(const Delivery& delivery) const;

  // REQUIRES: CheckCoverage was OK, layer 0..L, micro-batch 0..M-1.  Fused
  // layers: the same interval twice.  Recompute: null where there is none.
  const Interval& Forward(int layer, int micro_batch) const;
  const Interval& Backward(int layer, int micro_batch) const;
  const Interval* Recompute(int layer, int micro_batch) const;
  // The forward of a layer whose output was not kept, once more; or null.
  const Interval* Again(int layer, int micro_batch) const;

 private:
  using Table = std::vector<const Interval*>;

  size_t Index(int layer, int micro_batch) const;
  bool SamePart(const Interval* producer, const Interval& consumer,
                int layer) const;
  // From the first to the last of them their device computes for one
  // micro-batch of one part, and recomputes nothing.
  bool Together(const Interval& first, const Interval& last) const;
  absl::Status CheckShape(const Interval& interval) const;
  absl::Status CheckLength(const Interval& interval) const;
  absl::Status Enter(const Interval& interval, Table& table);
  void EnterLost(const Interval& interval);
  absl::Status CheckComplete(int layer, int micro_batch) const;
  // The input of a layer as a backward part is to find it.
  Delivery::Request SavedInput(const Interval& consumer, int layer,
                               int micro_batch) const;
  // Whether `user` uploaded the layer's input, which it did not make, to this
  // device.
  bool Uploads(const Interval* user, const Interval* maker,
               const Resource& device, int layer) const;
  absl::Status CheckAgainOf(const Delivery& delivery, int layer,
                            int micro_batch) const;
  absl::Status CheckForwardOf(const Delivery& delivery, int layer,
                              int micro_batch) const;
  absl::Status CheckRecomputeOf(const Delivery& delivery, int layer,
                                int micro_batch) const;
  absl::Status CheckBackwardOf(const Delivery& delivery, int layer,
                               int micro_batch) const;
  absl::Status CheckArrival(const Delivery& delivery,
                            const Delivery::Request& request) const;

  const Schedule& schedule_;
  const ModelCosts& costs_;
  const CheckOptions& options_;
  Table forward_, backward_, recompute_, again_;
  // What made the input of a layer, or its gradient, in parts that were given
  // up.
  std::map<std::tuple<PassDirection, int, int>, Table> lost_makers_;
  // What a device computes just before an interval.
  std::map<const Interval*, const Interval*> before_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_COMPUTE_CHECK_H_
