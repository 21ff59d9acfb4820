#include "scheduler/estimate/device_presets.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "scheduler/plan/machine.h"

namespace roundhouse {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

// What the published measurements see of PCIe 4.0 x16 on eight RTX 4090
// (scheduler/testdata/bubble_inputs.csv: hop_ms of a known tensor).
constexpr double kPcie4LinkRate = 21;
// Twice the signalling rate; the same share of it, not measured.
constexpr double kPcie5LinkRate = 42;

}  // namespace

const std::vector<DevicePreset>& DevicePresets() {
  static const auto& presets = *new std::vector<DevicePreset>{
      // Peak FP16 tensor with FP16 and FP32 accumulate, BF16 with FP32
      // accumulate as the latter; 24 GB; PCIe Gen 4.
      {"rtx3090", "NVIDIA Ampere GA102 GPU Architecture whitepaper", 24 * kGib,
       71, 142, kPcie4LinkRate},
      {"rtx4090", "NVIDIA Ada GPU Architecture whitepaper, appendix A",
       24 * kGib, 165.2, 330.3, kPcie4LinkRate},
      {"rtx5090",
       "NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix A",
       32 * kGib, 209.5, 419, kPcie5LinkRate},
      // Data-centre parts have one rate for both accumulators.
      {"a800", "NVIDIA A800 80GB data sheet (tensor rates as A100)", 80 * kGib,
       312, 312, kPcie4LinkRate},
      // The data sheet's 1,979 TFLOPS are with sparsity.
      {"h100", "NVIDIA H100 data sheet, SXM", 80 * kGib, 989.5, 989.5,
       kPcie5LinkRate},
      {"h200", "NVIDIA H200 data sheet, SXM", 141 * kGib, 989.5, 989.5,
       kPcie5LinkRate},
  };
  return presets;
}

const DevicePreset* FindPreset(absl::string_view name) {
  for (const DevicePreset& preset : DevicePresets()) {
    if (name == preset.name) return &preset;
  }
  return nullptr;
}

std::string PresetNames() {
  return absl::StrJoin(DevicePresets(), ", ",
                       [](std::string* out, const DevicePreset& preset) {
                         out->append(preset.name);
                       });
}

absl::StatusOr<std::vector<DevicePreset>> ParsePresets(absl::string_view text) {
  std::vector<DevicePreset> devices;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits('x', 1));
    int count = 1;
    const bool counted =
        parts.size() == 2 && absl::SimpleAtoi(parts[0], &count);
    const absl::string_view device = counted ? parts[1] : item;
    const std::vector<absl::string_view> words =
        absl::StrSplit(device, absl::MaxSplits(':', 1));
    const absl::string_view name = words[0];
    const DevicePreset* const preset = FindPreset(name);
    if (preset == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", item, "\": \"", name,
          "\" is no known device; a plan needs its speed, so give one of ",
          PresetNames(), ", as in 8xrtx4090"));
    }
    if (count < 1 || count + devices.size() > kMaxPlannedDevices) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", item, "\": from 1 to ", kMaxPlannedDevices,
                       " devices in all can be planned for"));
    }
    DevicePreset found = *preset;
    if (words.size() == 2) {
      const auto memory_bytes = ParseDeviceMemory(words[1]);
      if (!memory_bytes.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("\"", item, "\": \"", words[1],
                         "\" is no memory of a device, as in h100:24GiB"));
      }
      found.memory_bytes = *memory_bytes;
    }
    devices.insert(devices.end(), count, found);
  }
  return devices;
}

}  // namespace roundhouse
