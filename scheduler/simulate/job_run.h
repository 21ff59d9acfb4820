// One job of a simulation: its parts, what of their results is in host memory,
// and what the host does between them.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_JOB_RUN_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_JOB_RUN_H_

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/simulate/host_work.h"
#include "scheduler/simulate/part_run.h"
#include "scheduler/simulate/transfers.h"

namespace roundhouse {

class JobRun {
 public:
  struct Place {
    int index = 0;         // among the jobs
    int first_number = 0;  // of its first part among all jobs' parts
  };

  // `parts`: of all rounds.  Both references outlive it.
  JobRun(const Place& place, const ModelCosts& costs,
         const std::vector<Part>& parts, const HostWork::Rounds& rounds,
         Contributions contributions, FusedSlots fused);

  int index() const { return index_; }
  const ModelCosts& costs() const { return costs_; }
  const HostWork::Rounds& rounds() const { return rounds_; }
  HostWork& host() { return host_; }
  const HostWork& host() const { return host_; }

  const std::vector<std::unique_ptr<PartRun>>& runs() const { return runs_; }
  PartRun& run(int number) { return *runs_.at(number - first_number_); }
  // From its beginning, as another attempt.
  void Restart(int number, int attempt);

  int RoundOf(const Part& part) const {
    return static_cast<int>(part.micro_batches.begin / rounds_.micro_batches);
  }
  // Says of what round a transfer of this job is.
  void Stamp(int round, Transfer& transfer) const;

  char& InHost(const Boundary& boundary) {
    const auto row = kDirections * static_cast<size_t>(boundary.layer) +
                     static_cast<size_t>(boundary.direction);
    return in_host_[row * micro_batches_ + boundary.micro_batch];
  }
  // The part's sums of the layer are in host memory: the attempt after this one
  // does not send them again.
  void NoteSumsDown(int number, int layer) { down_.insert({number, layer}); }
  bool SumsDown(int number, int layer) const {
    return down_.count({number, layer}) > 0;
  }
  // The part that makes it; null: the host does.
  const PartRun* MakerOf(const Boundary& boundary) const;
  // Everything that the part reads.
  bool InputsInHost(const PartRun& run);
  bool WeightsMayGoUp(const PartRun& run) const;

  void PublishRows(int round);
  // Publishes the rows of the rounds that may begin; false: none did.
  bool PublishNextRows();

 private:
  static constexpr size_t kDirections = 3;

  const int index_;
  const int first_number_;
  const ModelCosts& costs_;
  const std::vector<Part>& parts_;
  const HostWork::Rounds rounds_;
  const FusedSlots fused_;
  const size_t micro_batches_;  // of all rounds
  HostWork host_;
  SavedInputs saved_;
  std::vector<std::unique_ptr<PartRun>> runs_;  // per part
  std::vector<char> in_host_;                   // by InHost: 0 or 1
  std::set<std::pair<int, int>> down_;          // part, layer
  int rounds_begun_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_JOB_RUN_H_
