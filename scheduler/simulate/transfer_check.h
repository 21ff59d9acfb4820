// Rules 5 to 9 of checker.h: what holds of a schedule's transfers.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFER_CHECK_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFER_CHECK_H_

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/simulate/checker.h"
#include "scheduler/simulate/compute_check.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

// Rule 6.  Between two parts everything goes through host memory, also on one
// device; inside a part it stays on the device.
class LinkDelivery : public Delivery {
 public:
  // Both must outlive it.
  LinkDelivery(const Schedule& schedule, const ModelCosts& costs);

  absl::StatusOr<int64_t> Arrival(const Request& request) const override;

 private:
  // Link, layer, direction, micro-batch.
  using Key = std::tuple<Resource, int, PassDirection, int>;
  struct Whole {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };

  // The end of the first whole transfer that begins at `from_ns` or later,
  // after `skipped` others.
  absl::StatusOr<int64_t> FirstEnd(const Request& request, Resource link,
                                   int64_t from_ns, int skipped) const;

  const ModelCosts& costs_;
  std::map<Key, std::vector<Whole>> transfers_;
};

class TransferCheck {
 public:
  // The first three must outlive it.
  TransferCheck(const Schedule& schedule, const ModelCosts& costs,
                const CheckOptions& options, Contributions contributions);

  absl::Status CheckRates() const;
  absl::Status CheckWeights() const;
  absl::Status CheckGradients() const;
  absl::Status CheckEmbeddingGradients() const;
  absl::Status CheckMemory() const;

  // What is known to come to (more than 0) and to leave the device, at a time.
  using Changes = std::vector<std::pair<int64_t, int64_t>>;
  void AppendHolds(int device, Changes& changes) const;
  // FAILED_PRECONDITION where that is at any time more than it has.
  static absl::Status CheckHolds(int device, Changes changes,
                                 const ModelCosts& costs,
                                 const Machine& machine);

 private:
  // Device, layer, direction of the slot, run of the part.
  using Use = std::tuple<int, int, PassDirection, int>;
  struct Span {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    int64_t bytes = 0;
  };
  using Spans = std::map<Use, Span>;

  // Run of the part, micro-batch, layer.
  using Pass = std::tuple<int, int, int>;

  // Layers and parts, by their first micro-batches, whose sums a run sent that
  // was given up, and sums that are thereby complete.
  struct SentBefore {
    std::set<std::pair<int, int>> parts;
    std::vector<int64_t> contributions, down_ns;  // per layer
  };
  absl::StatusOr<SentBefore> FindSentBefore() const;
  static void Extend(Spans& spans, const Use& use, const Interval& interval);
  void AppendActivations(const Interval& compute, Changes& changes) const;
  absl::Status CheckHostRate() const;
  absl::Status CheckReduction(int layer, int64_t contributions,
                              int64_t down_ns) const;

  const Schedule& schedule_;
  const ModelCosts& costs_;
  const CheckOptions& options_;
  const Contributions contributions_;
  Spans compute_;    // every use of a layer
  Spans weights_;    // its upload for it
  Spans backward_;   // its backward, fused included
  Spans given_up_;   // the same, of runs that were given up
  Spans gradients_;  // their way down
  // What a fused part's forward keeps, until its backward ends.
  std::map<Pass, int64_t> kept_until_ns_;
  std::map<int, Span> reduce_;
  std::map<int, int> first_micro_batch_;  // of each run of a part
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFER_CHECK_H_
