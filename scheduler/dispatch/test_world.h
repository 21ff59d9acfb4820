// A Dispatcher with workers around it, for this folder's tests.
#ifndef ROUNDHOUSE_SCHEDULER_DISPATCH_TEST_WORLD_H_
#define ROUNDHOUSE_SCHEDULER_DISPATCH_TEST_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/dispatch/dispatcher.h"

namespace roundhouse {

inline constexpr JobId kJob{1};
inline constexpr JobId kOther{2};

// Three decoder layers and the head; forward [0,1], fused [2,3], backward
// [1,1] [0,0]: four slots a round.
Plan TestPlan();
StepSpec TrainStep(int rounds, bool clip);

inline const JobShape kShape = {4, 5, false, {}};
// Its decoder layers have adapters.
inline const JobShape kAdapterShape = {
    4, 5, false, {false, true, true, true, false}};

// One to seven layers, tied or not, of which all train or some.
JobShape RandomShape(std::mt19937_64& random);
Plan RandomPlan(std::mt19937_64& random, int layers);
// Blocks for the step's activations and gradients between stages, when so many
// slots are sent ahead; 0: the fewest there may be.
int64_t BoundaryBlocksOf(const StepSpec& spec, const JobShape& shape,
                         int most_sent);
// Some plans are wider than there are devices.
void SplitAtRandom(std::mt19937_64& random, StepSpec& spec);

// Executes actions as workers would: a device begins its oldest slot once the
// first micro-batch of what it reads is there, or the oldest of another job
// once all is (a backfill slot only then), and a slot can finish only when all
// has been produced.  Checks
// the rules of the Dispatcher's header on every event.
class World {
 public:
  World(const JobShape& shape, int devices, uint64_t seed);

  Dispatcher& dispatcher() { return dispatcher_; }

  // With as many blocks as three slots a device need, where `spec` has none.
  uint64_t Begin(StepSpec spec, JobId job = kJob);
  // One random event that can happen now; false when none can.
  bool StepOnce();
  void RunToEnd();

  // Events.
  void Crash(int device);
  void Respawn(int device);
  void Lose(int device);
  void Leave(int device);
  void Stay(int device);
  // It stays, or its worker ends and comes back later.
  void LeaveForAWhile(std::mt19937_64& random, int device);
  void CrashHost();
  void Allow(uint64_t step);
  void HoldAfter(std::optional<uint64_t> step);
  void SetPriority(JobId job, Priority priority);
  void HoldSlots(StartedSlots started = StartedSlots::kWithdrawn,
                 JobId job = kJob);
  void ReleaseSlots(JobId job = kJob);
  void Abandon(JobId job = kJob);

  bool Idle(JobId job = kJob) { return dispatcher_.Idle(job); }
  bool Updating() { return dispatcher_.Updating(kJob); }

  std::vector<std::string> trace;
  std::vector<RunSlotAction> sent;
  std::vector<RunHostOpAction> host_ops;  // sent
  int steps_done = 0;
  int quiet = 0;
  bool allow_updates = true;
  std::set<uint64_t> skips;  // steps of kJob whose updates are skipped
  bool begin_next_when_reduced = false;
  std::function<void()> on_reduced;  // a step is, its updates are allowed
  // Slots say of each unit when its contribution is down.
  bool report_contributions = false;
  int early_reductions = 0;  // before a slot that contributes was done
  int split_reductions = 0;  // of a tied head: rows without its share
  int gathers = 0;           // done
  std::map<std::pair<uint64_t, int>, int> updates;  // step, unit -> count
  std::vector<uint64_t> done_of;                    // jobs, as steps end
  std::map<uint64_t, int64_t> slot_ns = {{1, 1}, {2, 1}, {3, 1}};
  std::map<uint64_t, int64_t> served;

 private:
  // Job, step, round, value, boundary, micro-batch.
  using BoundaryKey =
      std::tuple<JobId, uint64_t, int, BoundaryValue, int, int64_t>;
  // A unit's contribution of one micro-batch: job, step, round, unit,
  // micro-batch.
  using ContributionKey = std::tuple<JobId, uint64_t, int, int, int64_t>;
  using Events = std::vector<std::function<void()>>;

  void Take();
  void Execute(const RunSlotAction& action);
  void Execute(const WithdrawSlotAction& action);
  void Execute(const SetTurnAction& action);
  void Execute(const RunHostOpAction& action);
  void Execute(const StepReducedAction& action);
  void Execute(const StepDoneAction& action);
  void Execute(const QuietAction& action);

  bool Produced(const RunSlotAction& slot, BoundaryValue value, int boundary,
                IndexRange micro_batches);
  // What the slot writes of one of its micro-batches, unless it is there.
  void Produce(const RunSlotAction& slot, int64_t micro_batch);
  void Write(const BoundaryKey& key, int block);
  // The update that leaves what the step reads of the unit is done.
  bool WeightsReady(JobId job, uint64_t step, int unit);
  bool InputsReady(const RunSlotAction& slot, IndexRange micro_batches);
  void AddDeviceEvents(size_t device, Events& events);
  void Compute(size_t device, size_t index);
  void Contribute(const RunSlotAction& slot, int unit);
  void ReportContribution(size_t device);
  void ProduceSome(size_t device);
  void FinishSlot(size_t device);
  void AnswerWithdrawal(size_t device, size_t index);

  bool HostInputsReady(const RunHostOpAction& op);
  void FinishHostOp();

  // test_world_checks.cc
  void CheckInputs(const RunSlotAction& slot);
  void CheckRead(const BoundaryKey& key, int block);
  void CheckBlocks(const RunSlotAction& slot);
  void FreeBlocks(const RunHostOpAction& op);
  void CheckUpdate(const RunHostOpAction& op);
  void CheckReduce(const RunHostOpAction& op);
  void CheckSum(const RunHostOpAction& op, int sum);
  bool ContributorsAreDone(const RunHostOpAction& op, int sum);
  // The units that a backward slot contributes to, or JobShape::head_share().
  std::vector<int> UnitsOf(const RunSlotAction& slot) const;
  // What it adds, likewise.
  std::vector<int> SumsOf(const RunHostOpAction& op) const;

  // Whose sum a block is for.
  struct BlockUse {
    SlotId slot{};
    uint64_t step = 0;
    int round = 0;
    int layer = 0;
    int64_t micro_batch = 0;  // the slot's first
  };

  const JobShape shape_;
  bool taking_ = false;
  Dispatcher dispatcher_;
  std::mt19937_64 random_;
  std::map<std::pair<JobId, uint64_t>, StepSpec> specs_;
  std::vector<std::vector<RunSlotAction>> queues_;
  std::vector<RunHostOpAction> host_queue_;
  std::set<BoundaryKey> produced_;  // words that are raised
  std::map<std::pair<JobId, int>, BoundaryKey> memory_;  // by block
  std::set<ContributionKey> contributed_;
  std::map<SlotId, std::set<int>> units_down_;  // of slots not committed
  std::set<SlotId> committed_;
  std::set<SlotId> withdrawing_;
  std::set<std::pair<JobId, uint64_t>> reduced_;
  std::set<std::pair<JobId, uint64_t>> done_;
  std::set<std::pair<JobId, uint64_t>> dropped_;
  std::set<std::tuple<JobId, uint64_t, int, int>> reduces_;
  std::map<std::tuple<JobId, uint64_t, int>, int> updates_of_;
  // By job, whether it is for the head's sums, and number.
  std::map<std::tuple<JobId, bool, int>, BlockUse> blocks_;
  std::map<size_t, size_t> computing_;  // device, place in its queue
  std::set<SlotId> started_;            // the dispatcher knows it
  std::set<DeviceId> leaving_;
};

// Begins steps like `step`, and another one whenever one is reduced: of a stale
// shape two at a time.
class StepsWorld : public World {
 public:
  StepsWorld(const JobShape& shape, int devices, uint64_t seed, StepSpec step,
             int steps);

  // A device's process, which comes back or not, and maybe the host worker's.
  void LoseAtRandom(std::mt19937_64& random);

 private:
  void BeginOne();

  int alive_;  // devices, the first ones
  StepSpec step_;
  int left_;  // to begin
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_DISPATCH_TEST_WORLD_H_
