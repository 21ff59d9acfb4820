// What becomes of looks at GPUs: loans to processes, in a clock's time.
#include "server/devices/device_yields.h"

#include <optional>
#include <string>
#include <vector>

#include "base/manual_clock.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

wire::GpuProcesses Used(const std::string& uuid, uint32_t pid) {
  return {.uuid = uuid,
          .memory_bytes = 100,
          .processes = {{.pid = pid,
                         .compute = true,
                         .busy_percent = 35,
                         .uid = 1000,
                         .name = "python3"}}};
}
wire::GpuProcesses Free(const std::string& uuid) {
  return {.uuid = uuid, .memory_bytes = 100};
}

class DeviceYieldsTest : public testing::Test {
 protected:
  ManualClock clock_;
  std::vector<DeviceLoanList> told_;
  // The last device shares the GPU of the first.
  DeviceYields yields_{
      {"GPU-a", "GPU-b", "GPU-a"},
      [this](const DeviceLoanList& list) { told_.push_back(list); },
      kYieldBackAfter,
      clock_};
};

TEST_F(DeviceYieldsTest, DevicesOfTheGpuAreLeftToItAndComeBack) {
  yields_.See(Free("GPU-a"));
  yields_.See(Used("GPU-of-nobody", 7));
  EXPECT_TRUE(told_.empty());
  yields_.See(Used("GPU-a", 7));
  ASSERT_EQ(told_.size(), 1u);
  const DeviceLoan expected{.kind = DeviceLoan::Kind::kYielded,
                            .owner = "uid:1000",
                            .since = clock_.WallTime(),
                            .process = {.pid = 7, .name = "python3"}};
  EXPECT_EQ(told_[0], (DeviceLoanList{expected, std::nullopt, expected}));
  EXPECT_EQ(TextOf(0, *told_[0][0]),
            "device 0 is left to python3 (process 7 of uid:1000)");
  clock_.Advance(absl::Minutes(5));
  yields_.See(Used("GPU-a", 7));
  yields_.See(Free("GPU-b"));
  yields_.See(Free("GPU-a"));
  clock_.Advance(kYieldBackAfter - absl::Nanoseconds(1));
  yields_.See(Free("GPU-a"));
  EXPECT_EQ(told_.size(), 1u);
  clock_.Advance(absl::Nanoseconds(1));
  yields_.See(Free("GPU-a"));
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1], DeviceLoanList(3));
}

TEST_F(DeviceYieldsTest, WhoHasItIsShownSinceTheFirst) {
  const absl::Time since = clock_.WallTime();
  yields_.See(Used("GPU-b", 7));
  clock_.Advance(absl::Seconds(30));
  wire::GpuProcesses other = Used("GPU-b", 8);
  other.processes[0].uid.reset();
  other.processes[0].name.clear();
  yields_.See(other);
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1][1]->since, since);
  EXPECT_EQ(told_[1][1]->owner, "");
  EXPECT_EQ(TextOf(1, *told_[1][1]), "device 1 is left to process 8");
}

TEST_F(DeviceYieldsTest, OneDeviceIsTakenBack) {
  yields_.TakeBack(0);
  EXPECT_TRUE(told_.empty());
  yields_.See(Used("GPU-a", 7));
  yields_.TakeBack(0);
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_FALSE(told_[1][0].has_value());
  EXPECT_TRUE(told_[1][2].has_value());
  yields_.See(Used("GPU-a", 7));
  EXPECT_EQ(told_.size(), 2u);
  yields_.See(Used("GPU-a", 9));
  EXPECT_TRUE(told_.back()[0].has_value());
}

}  // namespace
}  // namespace roundhouse
