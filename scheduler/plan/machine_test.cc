#include "scheduler/plan/machine.h"

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

TEST(MachineTest, ANumberMeansEqualDevices) {
  const auto devices = ParseDevices("3");
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(*devices,
            std::vector<SimulatedDevice>(3, SimulatedDevice{24 * kGib, 1}));
}

TEST(MachineTest, AListMixesThem) {
  Machine machine;
  machine.devices = *ParseDevices("2x24GiB,1x16GiB,1x80GiB@0.5");
  ASSERT_EQ(machine.device_count(), 4);
  EXPECT_EQ(machine.devices[2].memory_bytes, 16 * kGib);
  EXPECT_EQ(machine.devices[3].memory_bytes, 80 * kGib);
  EXPECT_EQ(machine.TotalSpeed(), 3.5);
  EXPECT_EQ(machine.devices[3].RunNs(100), 200);
  EXPECT_EQ(machine.devices[2].RunNs(100), 100);
}

TEST(MachineTest, AWrongItemIsNamed) {
  for (const char* bad :
       {"", "0", "65", "-1", "x24GiB", "8x24GB", "8xGiB", "1x0GiB", "1xnanGiB",
        "1x24GiB@0", "1x24GiB@x", "1x24GiB@1@1", "40,40", "1,", "1x9999GiB"}) {
    const auto devices = ParseDevices(bad);
    ASSERT_FALSE(devices.ok()) << bad;
    EXPECT_EQ(devices.status().message().rfind("devices \"", 0), 0u)
        << devices.status();
  }
}

}  // namespace
}  // namespace roundhouse
