#include "server/gpu/gpu_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/byte_text.h"
#include "base/status.h"

namespace roundhouse {
namespace {

absl::Status Bad(const std::string& flag, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", what));
}

absl::Status BadForm(const std::string& devices) {
  return Bad("devices", absl::StrCat("want cuda, or cuda: with GPUs by number "
                                     "like cuda:0,2-5; got \"",
                                     devices, "\""));
}

// "2" or "2-5" as a first and a last index.
bool ParseRange(absl::string_view text, uint32_t& first, uint32_t& last) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, '-');
  return ends.size() <= 2 && absl::SimpleAtoi(ends.front(), &first) &&
         absl::SimpleAtoi(ends.back(), &last) && first <= last &&
         last < wire::kMaxGpus;
}

const wire::Gpu* Find(const wire::GpuReport& report, uint32_t index) {
  for (const wire::Gpu& gpu : report.gpus) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

std::string FaultOf(const wire::Gpu& gpu) {
  return absl::StrCat("GPU ", gpu.index, ": ", gpu.fault);
}

absl::Status TooMany(size_t count) {
  return Bad("devices",
             absl::StrCat(count, " GPUs; the limit is ", kMaxDevices));
}

uint64_t DevicesOf(const wire::Gpu& gpu, const std::vector<wire::Gpu>& gpus) {
  const auto devices = std::count_if(
      gpus.begin(), gpus.end(),
      [&](const wire::Gpu& other) { return other.index == gpu.index; });
  return static_cast<uint64_t>(devices);
}

absl::StatusOr<GpuChoice> ChooseAll(const wire::GpuReport& report) {
  GpuChoice choice;
  for (const wire::Gpu& gpu : report.gpus) {
    if (gpu.fault.empty()) {
      choice.gpus.push_back(gpu);
    } else {
      choice.left_out.push_back(FaultOf(gpu));
    }
  }
  if (choice.gpus.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--devices=cuda: ",
                     report.gpus.empty() ? "the driver knows no GPU"
                                         : "no GPU can be used: ",
                     absl::StrJoin(choice.left_out, "; ")));
  }
  if (choice.gpus.size() > kMaxDevices) return TooMany(choice.gpus.size());
  return choice;
}

}  // namespace

absl::StatusOr<GpuRequest> ParseGpuRequest(const std::string& devices) {
  GpuRequest request;
  if (devices == "cuda") {
    request.all = true;
    return request;
  }
  absl::string_view list = devices;
  if (!absl::ConsumePrefix(&list, "cuda:")) return BadForm(devices);
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    uint32_t first = 0, last = 0;
    if (!ParseRange(part, first, last)) return BadForm(devices);
    for (uint32_t index = first; index <= last; ++index) {
      request.indices.push_back(index);
    }
  }
  if (request.indices.size() > kMaxDevices) {
    return TooMany(request.indices.size());
  }
  return request;
}

absl::StatusOr<GpuChoice> ChooseGpus(const GpuRequest& request,
                                     const wire::GpuReport& report) {
  if (request.all) return ChooseAll(report);
  GpuChoice choice;
  for (const uint32_t index : request.indices) {
    const wire::Gpu* const gpu = Find(report, index);
    if (gpu == nullptr) {
      return Bad("devices",
                 absl::StrCat("there is no GPU ", index, "; the driver knows ",
                              report.gpus.size()));
    }
    if (!gpu->fault.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--devices: ", FaultOf(*gpu), "; --devices=cuda starts without it"));
    }
    choice.gpus.push_back(*gpu);
  }
  return choice;
}

bool OneDeviceEach(const std::vector<wire::Gpu>& gpus) {
  return std::all_of(gpus.begin(), gpus.end(), [&](const wire::Gpu& gpu) {
    return DevicesOf(gpu, gpus) == 1;
  });
}

bool ReachEachOther(const std::vector<wire::Gpu>& gpus) {
  const auto reaches = [](const wire::Gpu& from, const wire::Gpu& to) {
    return from.index == to.index ||
           (from.peers.value_or(0) >> to.index & 1) != 0;
  };
  return gpus.size() > 1 && OneDeviceEach(gpus) &&
         std::all_of(gpus.begin(), gpus.end(), [&](const wire::Gpu& from) {
           return std::all_of(
               gpus.begin(), gpus.end(),
               [&](const wire::Gpu& to) { return reaches(from, to); });
         });
}

absl::StatusOr<uint64_t> GpuMemoryLimit(const std::vector<wire::Gpu>& gpus,
                                        uint64_t asked) {
  uint64_t limit = asked != 0 ? asked : UINT64_MAX;
  for (const wire::Gpu& gpu : gpus) {
    const uint64_t devices = DevicesOf(gpu, gpus);
    const std::string each =
        devices == 1 ? "" : absl::StrCat(" for each of ", devices, " devices");
    if (asked != 0) {
      const uint64_t most = gpu.memory_total_bytes.value_or(UINT64_MAX);
      if (asked <= most / devices) continue;
      return Bad("device-memory",
                 absl::StrCat(ByteText(asked), each, "; GPU ", gpu.index,
                              " has ", ByteText(most)));
    }
    const uint64_t free = gpu.memory_free_bytes.value_or(0);
    if (free / devices <= kGpuReserveBytes) {
      return Bad(
          "device-memory",
          absl::StrCat("GPU ", gpu.index, " has ", ByteText(free),
                       " free, CUDA itself takes ", ByteText(kGpuReserveBytes),
                       each, "; say how much to use"));
    }
    limit = std::min(limit, free / devices - kGpuReserveBytes);
  }
  return limit;
}

}  // namespace roundhouse
