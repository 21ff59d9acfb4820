#include "base/wire/gpu_report.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace roundhouse::wire {
namespace {

constexpr char kFirstLine[] = "roundhouse-gpus 1";
constexpr uint64_t kMaxBytes = uint64_t{1} << 50;

struct TextField {
  const char* key;
  std::string Gpu::*value;
};
constexpr TextField kTexts[] = {{"fault", &Gpu::fault},
                                {"uuid", &Gpu::uuid},
                                {"name", &Gpu::name},
                                {"pci_bus_id", &Gpu::pci_bus_id}};

struct NumberField {
  const char* key;
  Gpu::Number Gpu::*value;
  uint64_t most;
};
constexpr NumberField kNumbers[] = {
    {"memory_total_bytes", &Gpu::memory_total_bytes, kMaxBytes},
    {"memory_free_bytes", &Gpu::memory_free_bytes, kMaxBytes},
    {"compute_major", &Gpu::compute_major, 999},
    {"compute_minor", &Gpu::compute_minor, 999},
    {"numa_node", &Gpu::numa_node, 4095},
    {"peers", &Gpu::peers, UINT64_MAX},
    {"pcie_generation", &Gpu::pcie_generation, 15},
    {"pcie_max_generation", &Gpu::pcie_max_generation, 15},
    {"pcie_width", &Gpu::pcie_width, 64},
    {"pcie_max_width", &Gpu::pcie_max_width, 64},
    {"pcie_replays", &Gpu::pcie_replays, UINT32_MAX},
    {"pcie_rx_bytes_per_second", &Gpu::pcie_rx_bytes_per_second, kMaxBytes},
    {"pcie_tx_bytes_per_second", &Gpu::pcie_tx_bytes_per_second, kMaxBytes},
    {"temperature_celsius", &Gpu::temperature_celsius, 1000},
    {"power_milliwatts", &Gpu::power_milliwatts, 100'000'000},
    {"power_limit_milliwatts", &Gpu::power_limit_milliwatts, 100'000'000},
    {"sm_clock_mhz", &Gpu::sm_clock_mhz, 1'000'000},
    {"utilization_percent", &Gpu::utilization_percent, 100},
};

absl::Status Bad(const std::string& key, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("GPU report: ", key, ": ", what));
}

bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= ' ' && c <= '~'; });
}

absl::Status CheckText(const std::string& key, const std::string& text) {
  if (text.size() > kMaxGpuTextBytes) {
    return Bad(key, absl::StrCat(text.size(), " characters; the limit is ",
                                 kMaxGpuTextBytes));
  }
  if (!IsPrintable(text)) return Bad(key, "has other than printable ASCII");
  return absl::OkStatus();
}

// It becomes a value of CUDA_VISIBLE_DEVICES, where a comma begins another GPU.
bool IsUuid(const std::string& text) {
  return absl::StartsWith(text, "GPU-") &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                  (c >= 'A' && c <= 'Z') || c == '-';
         });
}

absl::Status CheckGpu(const Gpu& gpu) {
  for (const TextField& field : kTexts) {
    RETURN_IF_ERROR(CheckText(field.key, gpu.*field.value));
  }
  for (const NumberField& field : kNumbers) {
    if ((gpu.*field.value).value_or(0) > field.most) {
      return Bad(field.key, absl::StrCat(*(gpu.*field.value), " is more than ",
                                         field.most));
    }
  }
  if (!gpu.uuid.empty() && !IsUuid(gpu.uuid)) {
    return Bad("uuid", absl::StrCat("\"", gpu.uuid, "\" is none"));
  }
  if (gpu.fault.empty() && gpu.uuid.empty()) return Bad("uuid", "is missing");
  if (gpu.fault.empty() && gpu.name.empty()) return Bad("name", "is missing");
  return absl::OkStatus();
}

uint64_t PeerBit(const Gpu& gpu) {
  return gpu.index < kMaxGpus ? uint64_t{1} << gpu.index : 0;
}

// `all`: the bits of the report's GPUs.
absl::Status CheckPeers(const Gpu& gpu, uint64_t all) {
  const uint64_t peers = gpu.peers.value_or(0);
  if ((peers & PeerBit(gpu)) != 0) {
    return Bad("peers", absl::StrCat("GPU ", gpu.index, " is its own"));
  }
  if ((peers & ~all) != 0) {
    return Bad("peers", absl::StrCat("GPU ", gpu.index,
                                     " has one that is not in the report"));
  }
  return absl::OkStatus();
}

absl::Status CheckReport(const GpuReport& report) {
  RETURN_IF_ERROR(CheckText("driver", report.driver));
  if (report.gpus.size() > kMaxGpus) {
    return Bad("gpu", absl::StrCat("more than ", kMaxGpus));
  }
  uint64_t all = 0;
  for (const Gpu& gpu : report.gpus) all |= PeerBit(gpu);
  std::set<std::string> uuids;
  for (size_t i = 0; i < report.gpus.size(); ++i) {
    const Gpu& gpu = report.gpus[i];
    RETURN_IF_ERROR(CheckGpu(gpu));
    if (i > 0 && gpu.index <= report.gpus[i - 1].index) {
      return Bad("gpu", "indices do not rise");
    }
    if (!gpu.uuid.empty() && !uuids.insert(gpu.uuid).second) {
      return Bad("uuid", absl::StrCat(gpu.uuid, " is there twice"));
    }
  }
  for (const Gpu& gpu : report.gpus) RETURN_IF_ERROR(CheckPeers(gpu, all));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Number(const std::string& key,
                                const std::string& text) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return Bad(key, absl::StrCat("\"", text, "\" is no number"));
  }
  return number;
}

// A line of a GPU other than its first.
absl::Status TakeField(const std::string& key, const std::string& value,
                       Gpu& gpu) {
  for (const TextField& field : kTexts) {
    if (key != field.key) continue;
    gpu.*field.value = value;
    return absl::OkStatus();
  }
  for (const NumberField& field : kNumbers) {
    if (key != field.key) continue;
    ASSIGN_OR_RETURN(gpu.*field.value, Number(key, value));
    return absl::OkStatus();
  }
  return Bad(key, "is no field of this version");
}

class Decoder {
 public:
  absl::Status Take(const std::string& line) {
    if (ended_) return Bad("end", "a line after it");
    const size_t split = line.find('=');
    const std::string key = line.substr(0, split);
    if (split == std::string::npos || !CheckText("", key).ok()) {
      return Bad("line", "want FIELD=VALUE");
    }
    const std::string value = line.substr(split + 1);
    RETURN_IF_ERROR(CheckText(key, value));
    if (value.empty()) return Bad(key, "has no value");
    if (key == "gpu") return BeginGpu(value);
    if (!seen_.insert(key).second) return Bad(key, "is there twice");
    if (key == "end") return End(value);
    if (!report_.gpus.empty()) {
      return TakeField(key, value, report_.gpus.back());
    }
    if (key != "driver") return Bad(key, "before the first gpu");
    report_.driver = value;
    return absl::OkStatus();
  }

  absl::StatusOr<GpuReport> Finish() {
    if (!ended_) return Bad("end", "is missing");
    RETURN_IF_ERROR(CheckReport(report_));
    return std::move(report_);
  }

 private:
  absl::Status BeginGpu(const std::string& value) {
    if (report_.gpus.size() == kMaxGpus) {
      return Bad("gpu", absl::StrCat("more than ", kMaxGpus));
    }
    ASSIGN_OR_RETURN(const uint64_t index, Number("gpu", value));
    if (index > UINT32_MAX) return Bad("gpu", "index out of range");
    report_.gpus.emplace_back().index = static_cast<uint32_t>(index);
    seen_.clear();
    return absl::OkStatus();
  }

  absl::Status End(const std::string& value) {
    ASSIGN_OR_RETURN(const uint64_t count, Number("end", value));
    if (count != report_.gpus.size()) {
      return Bad("end",
                 absl::StrCat(count, " GPUs; there are ", report_.gpus.size()));
    }
    ended_ = true;
    return absl::OkStatus();
  }

  GpuReport report_;
  std::set<std::string> seen_;  // keys since the last gpu line
  bool ended_ = false;
};

void AppendGpu(const Gpu& gpu, std::string& text) {
  absl::StrAppend(&text, "gpu=", gpu.index, "\n");
  for (const TextField& field : kTexts) {
    const std::string& value = gpu.*field.value;
    if (!value.empty()) absl::StrAppend(&text, field.key, "=", value, "\n");
  }
  for (const NumberField& field : kNumbers) {
    const Gpu::Number& value = gpu.*field.value;
    if (value) absl::StrAppend(&text, field.key, "=", *value, "\n");
  }
}

}  // namespace

absl::StatusOr<std::string> Encode(const GpuReport& report) {
  RETURN_IF_ERROR(CheckReport(report));
  std::string text = absl::StrCat(kFirstLine, "\n");
  if (!report.driver.empty()) {
    absl::StrAppend(&text, "driver=", report.driver, "\n");
  }
  for (const Gpu& gpu : report.gpus) AppendGpu(gpu, text);
  absl::StrAppend(&text, "end=", report.gpus.size(), "\n");
  return text;
}

absl::StatusOr<GpuReport> DecodeGpuReport(const std::string& text) {
  if (text.size() > kMaxGpuReportBytes) return Bad("end", "too long a report");
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines[0] != kFirstLine) {
    return Bad("line 1", absl::StrCat("want \"", kFirstLine, "\""));
  }
  if (!lines.back().empty()) return Bad("end", "is missing");
  lines.pop_back();
  Decoder decoder;
  for (size_t i = 1; i < lines.size(); ++i) {
    const absl::Status taken = decoder.Take(lines[i]);
    if (!taken.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", i + 1, ": ", taken.message()));
    }
  }
  return decoder.Finish();
}

}  // namespace roundhouse::wire
