// Which device a slot goes to.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/dispatch/test_world.h"

namespace roundhouse {
namespace {

TEST(PlacementTest, CostsDecideWhichDeviceIsFreeFirst) {
  World world(kShape, 2, 35);
  StepSpec spec = TrainStep(1, true);
  // Forward 8, fused 1 + 1, backward 1, backward 1: all but the first fit
  // beside it.
  spec.layer_costs = {{4, 0.5}, {0, 0.5}, {1, 0.5}, {1, 0.5}};
  world.Begin(spec);
  ASSERT_EQ(world.sent.size(), 4u);
  EXPECT_EQ(Number(world.sent[0].device), 0);
  EXPECT_EQ(Number(world.sent[1].device), 1);
  EXPECT_EQ(Number(world.sent[2].device), 1);
  EXPECT_EQ(Number(world.sent[3].device), 1);
  world.RunToEnd();
  EXPECT_EQ(world.steps_done, 1);
}

// Devices that begin their slots as they come: slots of equal cost, which wait
// for nothing.
class Devices {
 public:
  explicit Devices(const std::vector<DeviceTraits>& devices) {
    dispatcher_.AddJob(kJob, kShape);
    dispatcher_.HostUp();
    for (size_t d = 0; d < devices.size(); ++d) {
      dispatcher_.DeviceUp(static_cast<DeviceId>(d), devices[d]);
    }
    sent.resize(devices.size());
    free_ns_.resize(devices.size());
    queues_.resize(devices.size());
  }

  // `rounds` times seven slots of 1,000 ns, `slowness` times as long on each
  // device.
  void Run(int rounds, const std::vector<int64_t>& slowness,
           int64_t device_bytes = 0) {
    StepSpec spec = TrainStep(rounds, false);
    spec.plan = {
        {{0, 0}, {1, 1}, {2, 2}}, {{3, 3}, {2, 2}, {1, 1}, {0, 0}}, true};
    spec.blocks = {6, 2};
    spec.boundary_blocks = 256;
    spec.layer_costs.assign(4, {500, 500});
    spec.device_bytes = [device_bytes](const Part&) { return device_bytes; };
    dispatcher_.BeginStep(kJob, spec);
    for (Take(); FinishOne(slowness); Take()) {
    }
  }

  std::vector<double> Speeds() const { return dispatcher_.DeviceSpeeds(); }
  void Restart(int device) {
    dispatcher_.DeviceDown(static_cast<DeviceId>(device));
    dispatcher_.DeviceUp(static_cast<DeviceId>(device));
  }

  std::vector<int> sent;  // slots per device
  std::vector<int> order;

 private:
  bool FinishOne(const std::vector<int64_t>& slowness) {
    std::optional<size_t> next;
    int64_t end_ns = 0;
    for (size_t d = 0; d < queues_.size(); ++d) {
      if (queues_[d].empty()) continue;
      const int64_t end = free_ns_[d] + 1000 * slowness[d];
      if (next.has_value() && end >= end_ns) continue;
      next = d;
      end_ns = end;
    }
    if (!next.has_value()) return false;
    const SlotId slot = queues_[*next].front();
    queues_[*next].erase(queues_[*next].begin());
    free_ns_[*next] = end_ns;
    for (size_t d = 0; d < queues_.size(); ++d) {
      if (queues_[d].empty()) free_ns_[d] = std::max(free_ns_[d], end_ns);
    }
    dispatcher_.SlotDone(slot, 1000 * slowness[*next]);
    return true;
  }

  void Take() {
    for (auto actions = dispatcher_.TakeActions(); !actions.empty();
         actions = dispatcher_.TakeActions()) {
      for (const Action& action : actions) {
        if (const auto* slot = std::get_if<RunSlotAction>(&action)) {
          queues_[Number(slot->device)].push_back(slot->slot);
          ++sent[Number(slot->device)];
          order.push_back(Number(slot->device));
        } else if (const auto* op = std::get_if<RunHostOpAction>(&action)) {
          dispatcher_.HostOpDone(op->op);
        }
      }
    }
  }

  Dispatcher dispatcher_{DispatcherOptions{}};
  std::vector<int64_t> free_ns_;
  std::vector<std::vector<SlotId>> queues_;
};

TEST(PlacementTest, EqualSlotsGoRoundTheRing) {
  Devices devices(std::vector<DeviceTraits>(3));
  devices.Run(4, {1, 1, 1});
  devices.Run(5, {1, 1, 1});
  ASSERT_EQ(devices.order.size(), 63u);
  for (int i = 0; i < 63; ++i) EXPECT_EQ(devices.order[i], i % 3) << i;
}

TEST(PlacementTest, ADeviceOfHalfTheSpeedGetsHalfTheSlots) {
  Devices devices({{}, {0.5}, {}});
  devices.Run(10, {1, 2, 1});
  EXPECT_EQ(devices.sent, (std::vector<int>{28, 14, 28}));
}

// Nobody said so; its times do.
TEST(PlacementTest, ASlowDeviceIsFoundOut) {
  Devices devices(std::vector<DeviceTraits>(3));
  devices.Run(3, {1, 3, 1});
  devices.sent.assign(3, 0);
  devices.Run(9, {1, 3, 1});
  EXPECT_NEAR(devices.sent[1], 9, 1);  // of 63
}

// What is left of their noise would send slower ones more than they can do.
TEST(PlacementTest, DevicesOfAboutOneSpeedHaveOne) {
  Devices devices(std::vector<DeviceTraits>(4));
  devices.Run(12, {10, 22, 11, 10});
  const std::vector<double> speeds = devices.Speeds();
  EXPECT_EQ(speeds[0], speeds[2]);
  EXPECT_EQ(speeds[0], speeds[3]);
  EXPECT_NEAR(speeds[1] / speeds[0], 31.0 / 3 / 22, 0.02);
}

// Rows of a step's micro-batches are longer here and shorter there.
TEST(PlacementTest, DevicesWhoseSlotsVaryAreEqual) {
  Devices devices(std::vector<DeviceTraits>(8));
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> rows(0, 0.2);
  devices.Run(10, std::vector<int64_t>(8, 100));
  for (int step = 0; step < 100; ++step) {
    std::vector<int64_t> slowness;
    for (int device = 0; device < 8; ++device) {
      slowness.push_back(std::llround(100 * rows(random)));
    }
    devices.Run(1, slowness);
    EXPECT_EQ(devices.Speeds(), std::vector<double>(8, 1.0)) << step;
  }
}

TEST(PlacementTest, ADeviceThatIsFastAgainIsSeenSo) {
  Devices devices(std::vector<DeviceTraits>(2));
  devices.Run(40, {1, 1000});
  EXPECT_LT(devices.Speeds()[1], 0.05);
  // It gets nothing for a while.
  devices.Run(400, {1, 1});
  EXPECT_EQ(devices.Speeds(), std::vector<double>(2, 1.0));
}

TEST(PlacementTest, ASlowDeviceIsSlowAfterItsWorkerDied) {
  Devices devices(std::vector<DeviceTraits>(3));
  devices.Run(9, {1, 4, 1});
  const std::vector<double> before = devices.Speeds();
  EXPECT_LT(before[1], 0.5);
  devices.Restart(1);
  EXPECT_EQ(devices.Speeds(), before);
}

// The devices of the slots of three steps before costs are measured, in the
// order in which they are sent; they end in it, and take what is guessed times
// `vary`.
std::vector<int> GuessedOrder(const std::function<double()>& vary) {
  Dispatcher dispatcher{DispatcherOptions{}};
  dispatcher.AddJob(kJob, kShape);
  dispatcher.HostUp();
  for (int d = 0; d < 6; ++d) dispatcher.DeviceUp(static_cast<DeviceId>(d));
  StepSpec spec = TrainStep(1, false);
  spec.plan = {
      {{0, 0}, {1, 1}, {2, 2}}, {{3, 3}, {2, 2}, {1, 1}, {0, 0}}, true};
  spec.plan.split.assign(7, {2, 2});
  spec.groups = 4;
  spec.round_micro_batches = {4};
  spec.blocks = {64, 64};
  spec.boundary_blocks = 256;
  std::vector<int> order;
  std::vector<RunSlotAction> sent;
  for (int step = 0; step < 2; ++step) dispatcher.BeginStep(kJob, spec);
  int steps_to_begin = 1;
  for (size_t next = 0;; ++next) {
    for (auto actions = dispatcher.TakeActions(); !actions.empty();
         actions = dispatcher.TakeActions()) {
      for (const Action& action : actions) {
        if (const auto* slot = std::get_if<RunSlotAction>(&action)) {
          order.push_back(Number(slot->device));
          sent.push_back(*slot);
        } else if (const auto* op = std::get_if<RunHostOpAction>(&action)) {
          dispatcher.HostOpDone(op->op);
        } else if (std::holds_alternative<StepDoneAction>(action) &&
                   steps_to_begin-- > 0) {
          dispatcher.BeginStep(kJob, spec);
        }
      }
    }
    if (next == sent.size()) return order;
    const double units = sent[next].kind == SlotKind::kForward ? 1 : 3;
    dispatcher.SlotDone(sent[next].slot,
                        static_cast<int64_t>(units * 2e6 * vary()));
  }
}

// A bug: each slot that was done changed what the next ones were guessed to
// take, and which of several devices was free first.
TEST(PlacementTest, EqualGuessesStayEqualAsSlotsAreDone) {
  const std::vector<int> order = GuessedOrder([] { return 1.0; });
  EXPECT_EQ(order.size(), 3u * 7 * 2);
  std::mt19937_64 random(38);
  std::uniform_real_distribution<double> vary(0.9, 1.1);
  EXPECT_EQ(GuessedOrder([&] { return vary(random); }), order);
}

// Within what times vary by, devices are equal: the ring stays a ring.
TEST(PlacementTest, TimesThatVaryALittleChangeNothing) {
  Devices devices(std::vector<DeviceTraits>(2));
  devices.Run(3, {10, 11});
  ASSERT_EQ(devices.order.size(), 21u);
  for (int i = 0; i < 21; ++i) EXPECT_EQ(devices.order[i], i % 2) << i;
}

TEST(PlacementTest, ADeviceThatIsTooSmallIsLeftOutWhereOthersAreNot) {
  Devices devices({{1, 100}, {1, 10}, {1, 100}});
  devices.Run(2, {1, 1, 1}, 11);
  EXPECT_EQ(devices.sent, (std::vector<int>{7, 0, 7}));
  // It is all there is: the worker says what is missing.
  Devices small({{1, 10}});
  small.Run(1, {1}, 11);
  EXPECT_EQ(small.sent, std::vector<int>{7});
}

// Costs become nanoseconds while the job runs.
TEST(PlacementTest, TurnsOfAJobRiseBeforeAndAfterItsCostsAreMeasured) {
  Dispatcher dispatcher{DispatcherOptions{}};
  dispatcher.AddJob(kJob, kShape);
  dispatcher.HostUp();
  dispatcher.DeviceUp(DeviceId{0});
  uint64_t last = 0;
  int64_t served_ns = 0;
  for (const bool measured : {false, true, true}) {
    StepSpec spec = TrainStep(3, false);
    spec.plan = {{}, {{0, 3}}, true};
    spec.blocks = {6, 2};
    spec.boundary_blocks = 256;
    if (measured) spec.layer_costs.assign(4, {10, 125'000});
    dispatcher.BeginStep(kJob, spec);
    bool more = true;
    while (more) {
      more = false;
      for (const Action& action : dispatcher.TakeActions()) {
        if (const auto* slot = std::get_if<RunSlotAction>(&action)) {
          EXPECT_GT(slot->turn, last);
          last = slot->turn;
          served_ns += 1'000'000;
          dispatcher.SlotDone(slot->slot, 1'000'000);
          more = true;
        } else if (const auto* op = std::get_if<RunHostOpAction>(&action)) {
          dispatcher.HostOpDone(op->op);
          more = true;
        }
      }
    }
    EXPECT_TRUE(dispatcher.Idle(kJob));
  }
  EXPECT_EQ(served_ns, 9'000'000);
}

}  // namespace
}  // namespace roundhouse
