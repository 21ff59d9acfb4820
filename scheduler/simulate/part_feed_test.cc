#include "scheduler/simulate/part_feed.h"

#include <vector>

#include "gtest/gtest.h"
#include "scheduler/plan/test_costs.h"

namespace roundhouse {
namespace {

std::vector<Part> ForwardParts(int slots, int width) {
  std::vector<Part> parts;
  for (int slot = 0; slot < slots; ++slot) {
    for (int i = 0; i < width; ++i) {
      Part part;
      part.slot = slot;
      part.layers = {slot, slot};
      part.micro_batches = {i, i + 1};
      parts.push_back(part);
    }
  }
  return parts;
}

std::vector<int> DevicesOf(const std::vector<PartFeed::Sent>& sent) {
  std::vector<int> devices;
  for (const auto& entry : sent) devices.push_back(entry.device);
  return devices;
}

TEST(PartFeedTest, EqualPartsGoRoundTheRing) {
  const ModelCosts costs = SmallModel(8);
  Machine machine;
  machine.devices.resize(3);
  const auto parts = ForwardParts(7, 1);
  EarliestFinishFeed feed(parts, costs, machine, 2);
  EXPECT_EQ(DevicesOf(feed.TakeSent()), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_TRUE(feed.TakeSent().empty());
  // In order: device 1's room doesn't let part 6 pass, it goes to device 0.
  feed.Computed(1);
  EXPECT_TRUE(feed.TakeSent().empty());
  feed.Computed(0);
  const auto sent = feed.TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].part, 6);
  EXPECT_EQ(sent[0].device, 0);
}

TEST(PartFeedTest, ASlotsPartsAreOnDifferentDevices) {
  const ModelCosts costs = SmallModel(8);
  Machine machine;
  machine.devices = {{1, 1}, {1, 0.01}};
  const auto parts = ForwardParts(2, 2);
  EarliestFinishFeed feed(parts, costs, machine, 4);
  EXPECT_EQ(DevicesOf(feed.TakeSent()), (std::vector<int>{0, 1, 0, 1}));
}

TEST(PartFeedTest, ASlowDeviceGetsLess) {
  const ModelCosts costs = SmallModel(8);
  Machine machine;
  machine.devices = {{1, 1}, {1, 0.5}};
  const auto parts = ForwardParts(6, 1);
  EarliestFinishFeed feed(parts, costs, machine, 8);
  EXPECT_EQ(DevicesOf(feed.TakeSent()), (std::vector<int>{0, 0, 1, 0, 0, 1}));
}

TEST(PartFeedTest, ASmallDeviceIsPassedOver) {
  const ModelCosts costs = SmallModel(8);
  Machine machine;
  machine.devices.resize(3);
  machine.devices[1].memory_bytes = 20'000'000;  // a block has 21 MB
  EXPECT_EQ(AssignDevices(ForwardParts(4, 1), costs, machine),
            (std::vector<int>{0, 2, 0, 2}));
  // A slot as wide as the server has to take it; its plan does not fit.
  EXPECT_EQ(AssignDevices(ForwardParts(1, 3), costs, machine),
            (std::vector<int>{0, 2, 1}));
}

TEST(PartFeedTest, RoundsGoOnWhereTheLastOneEnded) {
  const ModelCosts costs = SmallModel(8);
  Machine machine;
  machine.devices.resize(3);
  const std::vector<Part> parts = ForwardParts(2, 2);
  std::vector<Part> twice = parts;
  for (Part part : parts) {
    part.slot += 2;
    twice.push_back(part);
  }
  for (const double speed : {1.0, 0.5}) {
    machine.devices[2].speed = speed;
    EXPECT_EQ(AssignDevices(parts, costs, machine, 2),
              AssignDevices(twice, costs, machine));
  }
}

TEST(PartFeedTest, ARingTakesTheNextDevice) {
  RingFeed feed(5, 2, 1);
  auto sent = feed.TakeSent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1].device, 1);
  // The first device is still busy; the second waits for its turn.
  feed.Computed(1);
  EXPECT_TRUE(feed.TakeSent().empty());
  feed.Computed(0);
  sent = feed.TakeSent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].part, 2);
  EXPECT_EQ(sent[0].device, 0);
  EXPECT_EQ(sent[1].device, 1);
}

}  // namespace
}  // namespace roundhouse
