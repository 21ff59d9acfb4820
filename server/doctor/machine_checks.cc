#include "server/doctor/machine_checks.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/byte_text.h"

namespace roundhouse {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

std::string GibText(uint64_t bytes) {
  return absl::StrCat(bytes / kGib, "GiB");
}

std::string GpuName(const wire::Gpu& gpu) {
  return gpu.fault.empty() ? absl::StrCat(gpu.index, " ", gpu.name)
                           : absl::StrCat(gpu.index, ": ", gpu.fault);
}

}  // namespace

Finding CheckKernel(const std::string& release) {
  Finding finding = {.name = "kernel", .found = release};
  int major = 0;
  int minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) {
    finding.verdict = Verdict::kWarning;
    finding.found = absl::StrCat("release \"", release, "\" has no number");
    finding.remedy = "uname -r, and compare with 5.9";
  } else if (std::pair(major, minor) <
             std::pair(kOldestKernel[0], kOldestKernel[1])) {
    finding.verdict = Verdict::kProblem;
    finding.found = absl::StrCat(release, "; openat2 and close_range need ",
                                 kOldestKernel[0], ".", kOldestKernel[1]);
    finding.remedy = "apt-get install linux-image-amd64, then reboot";
  }
  return finding;
}

Finding CheckMemory(const MemoryMeasure& memory, uint64_t host_memory_bytes) {
  Finding finding = {
      .name = "memory",
      .found =
          absl::StrCat("the machine has ", ByteText(memory.total_bytes),
                       ", --host-memory takes ", ByteText(host_memory_bytes))};
  const auto most = static_cast<uint64_t>(
      static_cast<double>(memory.total_bytes) * kMostHostMemoryShare);
  if (memory.total_bytes == 0) {
    finding.verdict = Verdict::kWarning;
    finding.found = "/proc/meminfo says no MemTotal";
    finding.remedy = "cat /proc/meminfo";
  } else if (host_memory_bytes > most) {
    finding.verdict = host_memory_bytes > memory.total_bytes
                          ? Verdict::kProblem
                          : Verdict::kWarning;
    finding.remedy = absl::StrCat(
        "set \"host-memory: ", GibText(most),
        "\" at most: a tenth of the memory is for workers and the page cache");
  }
  return finding;
}

Finding CheckSwap(const MemoryMeasure& memory) {
  const uint64_t used =
      memory.swap_total_bytes -
      std::min(memory.swap_total_bytes, memory.swap_free_bytes);
  Finding finding = {
      .name = "swap",
      .found =
          memory.swap_total_bytes == 0
              ? "none"
              : absl::StrCat(ByteText(used), " of ",
                             ByteText(memory.swap_total_bytes), " in use")};
  if (used > kGib) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "sysctl vm.swappiness=1, and a lower host-memory: training state that "
        "is swapped out makes every step wait for the disk";
  }
  return finding;
}

Finding CheckMemoryLock(std::optional<uint64_t> limit_bytes,
                        uint64_t host_memory_bytes, DeviceKind devices) {
  Finding finding = {
      .name = "memory lock",
      .found = limit_bytes.has_value()
                   ? absl::StrCat("at most ", ByteText(*limit_bytes))
                   : "unlimited"};
  if (devices != DeviceKind::kGpu) {
    absl::StrAppend(&finding.found, "; CPU devices lock none");
  } else if (limit_bytes.has_value() && *limit_bytes < host_memory_bytes) {
    absl::StrAppend(&finding.found, ", --host-memory is ",
                    ByteText(host_memory_bytes));
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "LimitMEMLOCK=infinity in the unit (deploy/systemd has it), or "
        "ulimit -l unlimited: GPUs copy faster from pinned memory";
  }
  return finding;
}

Finding CheckHugePages(const std::string& setting, uint64_t host_memory_bytes) {
  Finding finding = {.name = "huge pages"};
  if (setting.empty()) {
    finding.found = "the kernel has none for shared memory";
    return finding;
  }
  finding.found = absl::StrCat("shmem_enabled is ", setting);
  const bool given = !absl::StrContains(setting, "[never]") &&
                     !absl::StrContains(setting, "[deny]");
  if (!given && host_memory_bytes >= kManyPagesBytes) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, and "
        "restart the daemon (docs/operations.md makes it stay)";
  }
  return finding;
}

Finding CheckGpus(const absl::StatusOr<wire::GpuReport>& report,
                  DeviceKind devices) {
  Finding finding = {.name = "GPUs"};
  const bool wanted = devices == DeviceKind::kGpu;
  if (!report.ok()) {
    finding.found = std::string(report.status().message());
    if (!wanted) {
      absl::StrAppend(&finding.found, " (--devices asks for none)");
      return finding;
    }
    finding.verdict = Verdict::kProblem;
    finding.remedy =
        absl::IsDeadlineExceeded(report.status())
            ? "dmesg | grep -i nvrm; a GPU that fell off its bus needs a reboot"
            : "nvidia-smi must list the GPUs: apt-get install nvidia-driver, "
              "or dmesg | grep -i nvrm";
    return finding;
  }
  std::vector<std::string> names;
  bool faulty = false;
  for (const wire::Gpu& gpu : report->gpus) {
    faulty = faulty || !gpu.fault.empty();
    names.push_back(GpuName(gpu));
  }
  finding.found = absl::StrCat(
      "driver ", report->driver.empty() ? "of unknown version" : report->driver,
      names.empty() ? ", no GPU" : ", ", absl::StrJoin(names, ", "));
  if (wanted && names.empty()) {
    finding.verdict = Verdict::kProblem;
    finding.remedy = "nvidia-smi -L; lspci | grep -i nvidia";
  } else if (faulty) {
    finding.verdict = wanted ? Verdict::kWarning : Verdict::kOk;
    finding.remedy =
        wanted ? "dmesg | grep -i xid; reseat the card or reboot" : "";
  }
  return finding;
}

Finding CheckPcieLinks(const wire::GpuReport& report) {
  Finding finding = {.name = "PCIe links"};
  std::vector<std::string> links;
  bool narrow = false;
  for (const wire::Gpu& gpu : report.gpus) {
    if (!gpu.pcie_width.has_value()) continue;
    std::string link = absl::StrCat("GPU ", gpu.index, " x", *gpu.pcie_width);
    if (gpu.pcie_generation.has_value()) {
      absl::StrAppend(&link, " generation ", *gpu.pcie_generation);
    }
    if (gpu.pcie_max_generation.has_value()) {
      absl::StrAppend(&link, " of ", *gpu.pcie_max_generation);
    }
    if (gpu.pcie_max_width.has_value() &&
        *gpu.pcie_width < *gpu.pcie_max_width) {
      narrow = true;
      absl::StrAppend(&link, " (x", *gpu.pcie_max_width, " is possible)");
    }
    links.push_back(link);
  }
  finding.found =
      links.empty() ? "the driver says nothing" : absl::StrJoin(links, ", ");
  if (narrow) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "lspci -vv | grep -E 'NVIDIA|LnkSta:'; reseat the card, another riser "
        "or slot";
  }
  return finding;
}

Finding CheckClock(const ClockMeasure& clock) {
  Finding finding = {.name = "clock"};
  if (!clock.error.empty()) {
    finding.found = absl::StrCat("adjtimex: ", clock.error);
    finding.verdict = Verdict::kWarning;
    finding.remedy = "timedatectl";
  } else if (!clock.synchronized) {
    finding.found = "the kernel says that nobody keeps it in time";
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "timedatectl set-ntp true (apt-get install systemd-timesyncd): "
        "certificates and expiry of tokens go by it";
  } else {
    finding.found = "synchronised";
  }
  return finding;
}

}  // namespace roundhouse
