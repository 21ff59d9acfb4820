#include "scheduler/estimate/device_presets.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(DevicePresetsTest, EachSaysWhereItsNumbersAreFrom) {
  for (const DevicePreset& preset : DevicePresets()) {
    EXPECT_EQ(FindPreset(preset.name), &preset);
    EXPECT_TRUE(absl::StrContains(preset.source, "NVIDIA")) << preset.name;
    EXPECT_GE(preset.memory_bytes, int64_t{24} << 30);
    EXPECT_GE(preset.fp16_accumulate_tflops, preset.fp32_accumulate_tflops);
    EXPECT_GT(preset.link_rate, 0);
  }
  EXPECT_EQ(PresetNames(), "rtx3090, rtx4090, rtx5090, a800, h100, h200");
}

TEST(DevicePresetsTest, NumbersAndLists) {
  const auto eight = ParsePresets("8xrtx4090");
  ASSERT_TRUE(eight.ok()) << eight.status();
  EXPECT_EQ(*eight, std::vector<DevicePreset>(8, *FindPreset("rtx4090")));
  const auto mixed = ParsePresets("a800,2xrtx3090");
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_EQ(*mixed, (std::vector<DevicePreset>{*FindPreset("a800"),
                                               *FindPreset("rtx3090"),
                                               *FindPreset("rtx3090")}));
  const auto capped = ParsePresets("2xh100:24GiB,h200");
  ASSERT_TRUE(capped.ok()) << capped.status();
  DevicePreset small = *FindPreset("h100");
  small.memory_bytes = int64_t{24} << 30;
  EXPECT_EQ(*capped,
            (std::vector<DevicePreset>{small, small, *FindPreset("h200")}));
}

TEST(DevicePresetsTest, AWrongItemIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "\"\" is no known device"},
      {"8x24GiB", "\"24GiB\" is no known device; a plan needs its speed"},
      {"8xrtx4080", "one of rtx3090"},
      {"4090", "\"4090\""},
      {"0xrtx4090", "from 1 to 64"},
      {"-1xrtx4090", "from 1 to 64"},
      {"8xh100:24", "\"24\" is no memory"},
      {"h100:0GiB", "\"0GiB\" is no memory"},
      {"h100:nanGiB", "\"nanGiB\" is no memory"},
      {"2xh100:4097GiB", "\"4097GiB\" is no memory"},
      {"64xh100,h200", "\"h200\": from 1 to 64"},
      {"8xrtx4090,", "\"\" is no known device"}};
  for (const auto& [text, part] : cases) {
    const auto devices = ParsePresets(text);
    ASSERT_FALSE(devices.ok()) << text;
    EXPECT_EQ(devices.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(devices.status().message(), part))
        << devices.status();
  }
}

}  // namespace
}  // namespace roundhouse
