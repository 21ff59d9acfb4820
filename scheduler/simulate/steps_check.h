// Rules 10 to 13 of checker.h, and how a schedule of consecutive steps comes
// apart into its rounds.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_STEPS_CHECK_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_STEPS_CHECK_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/simulate/checker.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

class StepsCheck {
 public:
  // All arguments must outlive it.
  StepsCheck(const Schedule& schedule, const ModelCosts& costs,
             const StepsCheckOptions& options);

  // Finds the round of every interval; to be called first.  Micro-batches say
  // it; a reduction ends its layer's round; of several uploads of a layer to a
  // device each is for the next round that uses it there.
  absl::Status Split();
  // Every round by itself, and rates, overlap and memory of all.
  absl::Status CheckRounds() const;
  absl::Status CheckUpdates() const;
  absl::Status CheckWeightVersions() const;
  absl::Status CheckSums() const;
  absl::Status CheckRows() const;

 private:
  struct Span {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    int64_t bytes = 0;
  };
  using Key = std::pair<int, int>;  // round or step, layer
  using Spans = std::map<Key, Span>;

  static void Extend(Spans& spans, const Key& key, const Interval& interval);
  int Rounds() const { return options_.steps * options_.rounds; }
  int LastRound(int step) const { return (step + 1) * options_.rounds - 1; }
  int SourceStep(int step) const;
  absl::Status CheckPlace(const Interval& interval) const;
  absl::Status SplitWeights(const std::vector<const Interval*>& order);
  absl::Status SplitGradients(const std::vector<const Interval*>& order);
  void Add(const Interval& interval, int round);
  absl::Status CheckOverlap() const;
  absl::Status CheckUpdate(int step, int layer) const;
  absl::Status CheckCommitted(int step) const;
  absl::Status CheckUploads(const Schedule& round, int step) const;

  const Schedule& schedule_;
  const ModelCosts& costs_;
  const StepsCheckOptions& options_;
  std::vector<Schedule> rounds_;       // micro-batches counted within each
  Spans gradients_;                    // by round: their way down
  Spans reductions_;                   // by round
  Spans uploads_;                      // by step: of weights
  Spans updates_;                      // by step
  std::vector<int64_t> rows_up_ns_;    // by round: first input of layer 0
  std::vector<int64_t> rows_down_ns_;  // by step: last gradient of it
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_STEPS_CHECK_H_
