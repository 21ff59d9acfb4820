// Jobs that share devices and the host worker.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/turns.h"
#include "gtest/gtest.h"
#include "scheduler/dispatch/test_world.h"

namespace roundhouse {
namespace {

// One device that takes its slots by turns, a host worker that needs no time,
// and jobs that always have another round: who gets how much?
class OneDevice {
 public:
  OneDevice() {
    dispatcher_.HostUp();
    dispatcher_.DeviceUp(DeviceId{0});
  }
  void Add(JobId job, int64_t slot_ns, const JobOwner& owner = {}) {
    dispatcher_.AddJob(job, kShape, owner);
    slot_ns_[job] = slot_ns;
    Begin(job);
  }
  void Run(int64_t ns) {
    for (const int64_t end = now_ + ns; now_ < end;) {
      Take();
      ASSERT_FALSE(queue_.empty());
      const auto next =
          std::min_element(queue_.begin(), queue_.end(),
                           [](const RunSlotAction& a, const RunSlotAction& b) {
                             return a.turn < b.turn;
                           });
      const RunSlotAction slot = *next;
      queue_.erase(next);
      now_ += slot_ns_[slot.job];
      served[slot.job] += slot_ns_[slot.job];
      dispatcher_.SlotDone(slot.slot, slot_ns_[slot.job]);
    }
  }

  Dispatcher& dispatcher() { return dispatcher_; }
  void Hold(JobId job) { dispatcher_.HoldSlots(job, StartedSlots::kWithdrawn); }
  void Release(JobId job) { dispatcher_.ReleaseSlots(job); }

  std::map<JobId, int64_t> served;

 private:
  void Begin(JobId job) {
    StepSpec spec = TrainStep(8, false);
    spec.plan = {{}, {{0, 3}}, true};
    spec.blocks = {6, 2};
    spec.boundary_blocks = 256;
    dispatcher_.BeginStep(job, spec);
  }
  void Take() {
    for (auto actions = dispatcher_.TakeActions(); !actions.empty();
         actions = dispatcher_.TakeActions()) {
      for (const Action& action : actions) {
        if (const auto* slot = std::get_if<RunSlotAction>(&action)) {
          queue_.push_back(*slot);
        } else if (const auto* back =
                       std::get_if<WithdrawSlotAction>(&action)) {
          std::erase_if(queue_, [&](const RunSlotAction& sent) {
            return sent.slot == back->slot;
          });
          dispatcher_.SlotWithdrawn(back->slot);
        } else if (const auto* op = std::get_if<RunHostOpAction>(&action)) {
          dispatcher_.HostOpDone(op->op);
        } else if (const auto* done = std::get_if<StepDoneAction>(&action)) {
          Begin(done->job);
        }
      }
    }
  }

  Dispatcher dispatcher_{DispatcherOptions{}};
  std::vector<RunSlotAction> queue_;
  std::map<JobId, int64_t> slot_ns_;
  int64_t now_ = 0;
};

TEST(SeveralJobsTest, JobsGetEqualComputeTimeHoweverLongTheirSlotsAre) {
  OneDevice device;
  device.Add(kJob, 10);
  device.Add(kOther, 70);
  device.Run(100000);
  EXPECT_NEAR(static_cast<double>(device.served[kJob]), 50000, 300);
}

TEST(SeveralJobsTest, UsersShareByWeightHoweverManyJobsTheyHave) {
  const JobOwner ann = {"lab", "ann"};
  const JobOwner bob = {"lab", "bob"};
  OneDevice device;
  device.Add(kJob, 40, ann);
  for (uint64_t i = 2; i < 6; ++i) device.Add(JobId{i}, 25, bob);
  device.Run(100000);
  EXPECT_NEAR(static_cast<double>(device.served[kJob]), 50000, 100);
  device.dispatcher().SetWeights({.users = {{"bob", 3}}});
  device.served.clear();
  device.Run(100000);
  EXPECT_NEAR(static_cast<double>(device.served[kJob]), 25000, 100);
  // Samples of hers.
  std::map<std::string, int64_t> charged;
  device.dispatcher().OnCharge([&charged](const DeviceCharge& charge) {
    charged[charge.job.has_value() ? charge.owner.user : "sample"] +=
        charge.device_ns;
  });
  device.dispatcher().NoteUse({.owner = ann, .device_ns = 10000});
  device.served.clear();
  device.Run(100000);
  EXPECT_NEAR(static_cast<double>(device.served[kJob]), 17500, 150);
  EXPECT_EQ(charged["sample"], 10000);
  EXPECT_EQ(charged["ann"], device.served[kJob]);
  for (uint64_t i = 2; i < 6; ++i) charged["bob"] -= device.served[JobId{i}];
  EXPECT_EQ(charged["bob"], 0);
}

TEST(SeveralJobsTest, WhoWaitsIsWhoHasASlotThatNoDeviceTakes) {
  OneDevice device;
  const auto waiting = [&device] {
    std::map<std::string, int> jobs;
    for (const JobOwner& owner : device.dispatcher().Waiting()) {
      ++jobs[owner.user];
    }
    return jobs;
  };
  device.Add(kJob, 40, {"lab", "ann"});
  device.Run(1000);
  EXPECT_TRUE(waiting().empty());  // its sums have no room for more slots
  for (uint64_t i = 2; i < 6; ++i) device.Add(JobId{i}, 25, {"lab", "bob"});
  device.Run(1000);
  EXPECT_GE(waiting()["bob"], 2);
  device.dispatcher().SetPriority(JobId{2}, Priority::kBackfill);
  for (uint64_t i = 3; i < 6; ++i) device.Hold(JobId{i});
  device.Run(1000);
  EXPECT_EQ(waiting()["bob"], 0);
}

// Each goes before those that were sent: turns have room below the first one.
TEST(SeveralJobsTest, JobsThatBeginInTheOtherOrderAllHaveTheirTurn) {
  Dispatcher dispatcher({});
  dispatcher.HostUp();
  dispatcher.DeviceUp(DeviceId{0});
  StepSpec spec = TrainStep(1, true);
  spec.blocks = {3, 1};
  spec.boundary_blocks = 256;
  for (uint64_t i = 1; i < 5; ++i) {
    dispatcher.AddJob(JobId{i}, kShape, {"lab", std::string(i, 'u')});
  }
  std::vector<uint64_t> turns;
  for (uint64_t i = 4; i > 0; --i) {
    dispatcher.BeginStep(JobId{i}, spec);
    for (const Action& action : dispatcher.TakeActions()) {
      const auto* slot = std::get_if<RunSlotAction>(&action);
      if (slot != nullptr) turns.push_back(slot->turn);
      const auto* op = std::get_if<RunHostOpAction>(&action);
      if (op != nullptr) dispatcher.HostOpDone(op->op);
    }
  }
  ASSERT_EQ(turns.size(), 4u);
  EXPECT_LT(*std::max_element(turns.begin(), turns.end()), kBackfillTurn);
  EXPECT_LT(*std::max_element(turns.begin(), turns.end()) -
                *std::min_element(turns.begin(), turns.end()),
            uint64_t{1} << 30);
}

// Nobody is there when the second one comes.
TEST(SeveralJobsTest, AJobThatWasAwayWhenAnotherCameDoesNotWaitForIt) {
  OneDevice device;
  device.Add(kJob, 10);
  device.Run(100000);
  device.Hold(kJob);
  device.Add(kOther, 10);
  device.Run(1000);
  device.Release(kJob);
  device.served.clear();
  device.Run(10000);
  EXPECT_NEAR(static_cast<double>(device.served[kJob]), 5000, 100);
}

// It waited for its disk with a step begun.
TEST(SeveralJobsTest, AJobThatWasHeldIsOwedNothing) {
  OneDevice device;
  device.Add(kJob, 10);
  device.Add(kOther, 10);
  device.Run(10000);
  device.Hold(kOther);
  device.served.clear();
  device.Run(100000);
  EXPECT_EQ(device.served[kOther], 0);
  device.Release(kOther);
  device.served.clear();
  device.Run(10000);
  EXPECT_NEAR(static_cast<double>(device.served[kOther]), 5000, 100);
}

TEST(SeveralJobsTest, AJobThatWasAwayIsOwedNothing) {
  OneDevice device;
  device.Add(kJob, 10);
  device.Run(100000);
  device.Add(kOther, 10);
  device.Run(10000);
  EXPECT_NEAR(static_cast<double>(device.served[kOther]), 5000, 100);
}

TEST(SeveralJobsTest, AJobThatWaitsLeavesEveryDeviceToTheOthers) {
  World world(kShape, 2, 32);
  world.dispatcher().AddJob(kOther, kShape);
  world.HoldAfter(world.Begin(TrainStep(1, false)));
  world.RunToEnd();
  world.Begin(TrainStep(1, false));
  world.RunToEnd();
  ASSERT_EQ(world.trace.back(), "reduced 1");  // and held
  for (int step = 0; step < 3; ++step) {
    world.Begin(TrainStep(2, true), kOther);
    world.RunToEnd();
    EXPECT_TRUE(world.Idle(kOther));
  }
  EXPECT_FALSE(world.Idle());
  world.HoldAfter(std::nullopt);
  world.RunToEnd();
  EXPECT_TRUE(world.Idle());
}

TEST(SeveralJobsTest, AbandoningOneJobLeavesTheOther) {
  World world(kShape, 2, 34);
  world.dispatcher().AddJob(kOther, kShape);
  world.Begin(TrainStep(2, true));
  world.Begin(TrainStep(2, true), kOther);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(world.StepOnce());
  world.Abandon();
  world.RunToEnd();
  EXPECT_EQ(world.quiet, 1);
  EXPECT_EQ(world.done_of, std::vector<uint64_t>{2});
  world.dispatcher().RemoveJob(kJob);
  world.Begin(TrainStep(1, true), kOther);
  world.RunToEnd();
  EXPECT_EQ(world.done_of.size(), 2u);
}

TEST(SeveralJobsTest, AJobGoesOnlyWhenNoDeviceHasASlotOfIt) {
  Dispatcher dispatcher({});
  dispatcher.AddJob(kJob, kShape);
  dispatcher.HostUp();
  dispatcher.DeviceUp(DeviceId{0});
  // A gather that was not answered is forgotten.
  StepSpec spec = TrainStep(1, true);
  spec.blocks = {3, 1};
  spec.boundary_blocks = 256;
  dispatcher.BeginStep(kJob, spec);
  EXPECT_DEATH(dispatcher.RemoveJob(kJob), "check failed");
  dispatcher.DeviceDown(DeviceId{0});
  dispatcher.DeviceLost(DeviceId{0});
  HostOpId gather{};
  for (const Action& action : dispatcher.TakeActions()) {
    const auto* op = std::get_if<RunHostOpAction>(&action);
    if (op != nullptr) gather = op->op;
  }
  dispatcher.RemoveJob(kJob);
  dispatcher.HostOpDone(gather);
  EXPECT_TRUE(dispatcher.TakeActions().empty());
}

// One device, so that all host operations of a job can be sent at once.
TEST(SeveralJobsTest, TheHostWorkerServesJobsInTurns) {
  Dispatcher dispatcher({});
  dispatcher.DeviceUp(DeviceId{0});
  StepSpec spec = TrainStep(2, true);
  spec.plan = {{}, {{0, 3}}, true};
  spec.blocks = {6, 2};
  spec.boundary_blocks = 256;
  for (const JobId job : {kJob, kOther}) {
    dispatcher.AddJob(job, kShape);
    dispatcher.BeginStep(job, spec);
  }
  dispatcher.HostUp();
  std::vector<JobId> jobs;
  for (const Action& action : dispatcher.TakeActions()) {
    const auto* const op = std::get_if<RunHostOpAction>(&action);
    if (op != nullptr) jobs.push_back(op->job);
  }
  EXPECT_EQ(jobs, (std::vector<JobId>{kJob, kOther, kJob, kOther}));
}

// What was sent of each job since it was asked last.
std::map<JobId, std::vector<RunSlotAction>> TakeSlots(Dispatcher& dispatcher) {
  std::map<JobId, std::vector<RunSlotAction>> sent;
  for (const Action& action : dispatcher.TakeActions()) {
    const auto* const slot = std::get_if<RunSlotAction>(&action);
    if (slot != nullptr) sent[slot->job].push_back(*slot);
  }
  return sent;
}

// --- urgent ---

class UrgentTest : public testing::Test {
 protected:
  static constexpr JobId kThird{3};

  UrgentTest() {
    dispatcher_.HostUp();
    dispatcher_.DeviceUp(DeviceId{0});
    spec_.blocks = {3, 1};
    spec_.boundary_blocks = 256;
  }
  std::map<JobId, std::vector<RunSlotAction>> Begin(
      JobId job, Priority priority = Priority::kNormal) {
    dispatcher_.AddJob(job, kShape, {"lab", "ann"}, priority);
    dispatcher_.BeginStep(job, spec_);
    return TakeSlots(dispatcher_);
  }

  Dispatcher dispatcher_{{}};
  StepSpec spec_ = TrainStep(1, true);
};

TEST_F(UrgentTest, ItsSlotsAreNextOnADeviceThatIsFull) {
  auto sent = Begin(kJob);
  const size_t others = sent[kJob].size() + Begin(kOther)[kOther].size();
  EXPECT_EQ(others, 4u);
  auto urgent = Begin(kThird, Priority::kUrgent);
  ASSERT_EQ(urgent[kThird].size(), 2u);
  EXPECT_LT(urgent[kThird].back().turn, sent[kJob].front().turn);
  EXPECT_LT(urgent[kThird].front().turn, urgent[kThird].back().turn);
}

TEST_F(UrgentTest, ItsHostOperationsAreNext) {
  Dispatcher later({.max_host_ops = 1});
  later.DeviceUp(DeviceId{0});
  for (const JobId job : {kJob, kThird}) {
    later.AddJob(job, kShape, {},
                 job == kThird ? Priority::kUrgent : Priority::kNormal);
    later.BeginStep(job, spec_);
  }
  later.HostUp();
  std::vector<JobId> jobs;
  for (const Action& action : later.TakeActions()) {
    const auto* const op = std::get_if<RunHostOpAction>(&action);
    if (op != nullptr) jobs.push_back(op->job);
  }
  EXPECT_EQ(jobs, (std::vector<JobId>{kThird}));
}

TEST_F(UrgentTest, AJobThatBecomesUrgentIsNext) {
  auto sent = Begin(kJob);
  auto other = Begin(kOther);
  ASSERT_EQ(other[kOther].size(), 1u);
  dispatcher_.SetPriority(kOther, Priority::kUrgent);
  const std::vector<Action> actions = dispatcher_.TakeActions();
  ASSERT_EQ(actions.size(), 3u);
  // The one that the device has first, for the others read what it computes.
  const auto& turn = std::get<SetTurnAction>(actions[0]);
  EXPECT_EQ(turn.slot, other[kOther].front().slot);
  EXPECT_LT(turn.turn, sent[kJob].front().turn);
  std::map<JobId, std::vector<RunSlotAction>> more;
  for (const Action& action : {actions[1], actions[2]}) {
    more[kOther].push_back(std::get<RunSlotAction>(action));
    EXPECT_LT(turn.turn, more[kOther].back().turn);
    EXPECT_LT(more[kOther].back().turn, sent[kJob].front().turn);
  }
  // One that is sent again has it, too.
  dispatcher_.DeviceDown(DeviceId{0});
  dispatcher_.DeviceUp(DeviceId{0});
  auto again = TakeSlots(dispatcher_);
  ASSERT_FALSE(again[kOther].empty());
  for (const RunSlotAction& slot : again[kOther]) {
    EXPECT_LT(slot.turn, sent[kJob].front().turn);
  }
  // What it has is still urgent; what comes is not.
  dispatcher_.SetPriority(kOther, Priority::kNormal);
  EXPECT_TRUE(dispatcher_.TakeActions().empty());
  dispatcher_.SlotDone(turn.slot, 10);
  more = TakeSlots(dispatcher_);
  ASSERT_EQ(more[kOther].size(), 1u);
  EXPECT_GE(more[kOther][0].turn, kNormalTurn);
}

TEST_F(UrgentTest, UrgentJobsLeaveRoomForOneSlotOfOthers) {
  size_t urgent = 0;
  for (uint64_t i = 5; i < 8; ++i) {
    urgent += Begin(JobId{i}, Priority::kUrgent)[JobId{i}].size();
  }
  EXPECT_EQ(urgent, 5u);
  EXPECT_EQ(Begin(kJob)[kJob].size(), 1u);
}

// Their operations come first, and the others take turns meanwhile.
TEST_F(UrgentTest, OthersTakeTurnsWithTheHostWorker) {
  Dispatcher dispatcher({.max_host_ops = 1});
  for (int d = 0; d < 2; ++d) dispatcher.DeviceUp(static_cast<DeviceId>(d));
  StepSpec spec = TrainStep(4, true);
  spec.plan = {{}, {{0, 3}}, true};
  spec.blocks = {6, 4};
  spec.boundary_blocks = 256;
  for (uint64_t i = 1; i < 4; ++i) {
    dispatcher.AddJob(JobId{i}, kShape, {},
                      i == 3 ? Priority::kUrgent : Priority::kNormal);
    dispatcher.BeginStep(JobId{i}, spec);
  }
  dispatcher.HostUp();
  std::vector<JobId> others;
  for (int i = 0; i < 12 && others.size() < 4; ++i) {
    for (const Action& action : dispatcher.TakeActions()) {
      const auto* const op = std::get_if<RunHostOpAction>(&action);
      if (op == nullptr) continue;
      if (op->job != kThird) others.push_back(op->job);
      dispatcher.HostOpDone(op->op);
    }
  }
  EXPECT_EQ(others, (std::vector<JobId>{kJob, kOther, kJob, kOther}));
}

// --- backfill ---

// What the devices were sent of each job before any slot was done.
std::map<JobId, std::vector<RunSlotAction>> SentAtFirst(Priority other) {
  Dispatcher dispatcher({});
  dispatcher.HostUp();
  for (int d = 0; d < 2; ++d) dispatcher.DeviceUp(static_cast<DeviceId>(d));
  // The other one is there first.
  dispatcher.AddJob(kOther, kShape, {}, other);
  dispatcher.AddJob(kJob, kShape);
  StepSpec spec = TrainStep(2, true);
  spec.blocks = {3, 1};
  spec.boundary_blocks = 256;
  spec.layer_costs.assign(4, {1000, 3000});
  dispatcher.BeginStep(kJob, spec);
  dispatcher.BeginStep(kOther, spec);
  return TakeSlots(dispatcher);
}

TEST(SeveralJobsTest, BackfillSlotsTakeNoRoomAndComeLast) {
  auto sent = SentAtFirst(Priority::kBackfill);
  EXPECT_EQ(sent[kOther].size(), 5u);  // all of its step
  for (const RunSlotAction& slot : sent[kOther]) {
    EXPECT_GE(slot.turn, kBackfillTurn);
  }
  for (const RunSlotAction& slot : sent[kJob]) {
    EXPECT_LT(slot.turn, kBackfillTurn);
  }
}

TEST(SeveralJobsTest, BackfillSlotsDoNotMoveOthers) {
  const auto devices = [](const std::vector<RunSlotAction>& slots) {
    std::vector<int> found;
    for (const RunSlotAction& slot : slots) {
      found.push_back(Number(slot.device));
    }
    return found;
  };
  World alone(kShape, 2, 41);
  StepSpec spec = TrainStep(2, true);
  spec.layer_costs.assign(4, {1000, 3000});
  alone.Begin(spec);
  EXPECT_EQ(devices(SentAtFirst(Priority::kBackfill)[kJob]),
            devices(alone.sent));
}

TEST(SeveralJobsTest, ABackfillJobAloneHasTheDevicesToItself) {
  Dispatcher dispatcher({});
  dispatcher.HostUp();
  dispatcher.DeviceUp(DeviceId{0});
  dispatcher.AddJob(kOther, kShape, {}, Priority::kBackfill);
  dispatcher.AddJob(kJob, kShape);  // without a step
  StepSpec spec = TrainStep(1, true);
  spec.blocks = {3, 1};
  spec.boundary_blocks = 256;
  dispatcher.BeginStep(kOther, spec);
  int slots = 0;
  for (const Action& action : dispatcher.TakeActions()) {
    slots += std::holds_alternative<RunSlotAction>(action) ? 1 : 0;
  }
  EXPECT_EQ(slots, 3);
}

}  // namespace
}  // namespace roundhouse
