#include "server/observe/gpu_series.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"

namespace roundhouse {
namespace {

class GpuSeriesTest : public testing::Test {
 protected:
  GpuSeriesTest() {
    gpu_.uuid = "GPU-a";
    gpu_.memory_total_bytes = 1000;
    gpu_.memory_free_bytes = 900;
    gpu_.pcie_generation = 4;
    gpu_.pcie_max_generation = 4;
    gpu_.pcie_width = 8;
    gpu_.pcie_max_width = 16;
    gpu_.pcie_replays = 7;
    gpu_.pcie_rx_bytes_per_second = 2000;
    gpu_.pcie_tx_bytes_per_second = 1000;
    gpu_.temperature_celsius = 41;
    gpu_.power_milliwatts = 23500;
    gpu_.power_limit_milliwatts = 450000;
    gpu_.sm_clock_mhz = 2520;
    gpu_.utilization_percent = 50;
  }

  std::string Page() const {
    std::string page;
    const std::string all =
        prometheus::TextSerializer().Serialize(registry_->Collect());
    for (size_t at = 0, end; at < all.size(); at = end + 1) {
      end = all.find('\n', at);
      if (all[at] != '#') page += all.substr(at, end + 1 - at);
    }
    return page;
  }

  wire::Gpu gpu_;
  const std::shared_ptr<prometheus::Registry> registry_ =
      std::make_shared<prometheus::Registry>();
  GpuSeries series_{*registry_};
};

TEST_F(GpuSeriesTest, EveryValueInItsUnit) {
  series_.Set(2, gpu_);
  EXPECT_EQ(Page(),
            "roundhouse_pcie_replays_total{device=\"2\"} 7\n"
            "roundhouse_device_gpu_lost{device=\"2\"} 0\n"
            "roundhouse_device_temperature_celsius{device=\"2\"} 41\n"
            "roundhouse_device_power_watts{device=\"2\"} 23.5\n"
            "roundhouse_device_power_limit_watts{device=\"2\"} 450\n"
            "roundhouse_device_sm_clock_hertz{device=\"2\"} 2520000000\n"
            "roundhouse_device_nvml_utilization_ratio{device=\"2\"} 0.5\n"
            "roundhouse_device_nvml_memory_used_bytes{device=\"2\"} 100\n"
            "roundhouse_pcie_nvml_bytes_per_second{device=\"2\",direction="
            "\"d2h\"} 1000\n"
            "roundhouse_pcie_nvml_bytes_per_second{device=\"2\",direction="
            "\"h2d\"} 2000\n"
            "roundhouse_pcie_link_info{device=\"2\",generation=\"4\",width="
            "\"8\"} 1\n"
            "roundhouse_pcie_link_ratio{device=\"2\"} 0.5\n");
}

TEST_F(GpuSeriesTest, WhatIsNotKnownHasNoSeries) {
  series_.Set(0, gpu_);
  gpu_ = wire::Gpu();
  gpu_.uuid = "GPU-a";
  gpu_.temperature_celsius = 50;
  series_.Set(0, gpu_);
  EXPECT_EQ(Page(),
            "roundhouse_device_gpu_lost{device=\"0\"} 0\n"
            "roundhouse_device_temperature_celsius{device=\"0\"} 50\n");
}

TEST_F(GpuSeriesTest, ALostGpuHasOnlyThat) {
  series_.Set(0, gpu_);
  gpu_.fault = "GPU is lost";
  series_.Set(0, gpu_);
  EXPECT_EQ(Page(), "roundhouse_device_gpu_lost{device=\"0\"} 1\n");
}

TEST_F(GpuSeriesTest, DroppedDevicesHaveNone) {
  series_.CountProbeFailures(0);
  series_.Set(0, gpu_);
  series_.Set(1, gpu_);
  series_.Drop(0);
  series_.Drop(1);
  series_.Drop(7);
  series_.CountProbeFailures(1);
  EXPECT_EQ(Page(), "roundhouse_gpu_probe_failures_total 1\n");
}

TEST_F(GpuSeriesTest, ALinkThatChangesLeavesNoOldOne) {
  series_.Set(0, gpu_);
  gpu_.pcie_generation = 3;
  series_.Set(0, gpu_);
  const std::string page = Page();
  EXPECT_EQ(page.find("generation=\"4\""), std::string::npos) << page;
  EXPECT_NE(page.find("{device=\"0\",generation=\"3\",width=\"8\"} 1"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("pcie_link_ratio{device=\"0\"} 0.25"), std::string::npos)
      << page;
}

TEST_F(GpuSeriesTest, ReplaysRiseAndBeginAnewWithTheDriver) {
  for (const uint64_t replays : {7, 9, 2}) {
    gpu_.pcie_replays = replays;
    series_.Set(0, gpu_);
    EXPECT_NE(Page().find("roundhouse_pcie_replays_total{device=\"0\"} " +
                          std::to_string(replays) + "\n"),
              std::string::npos)
        << Page();
  }
}

}  // namespace
}  // namespace roundhouse
