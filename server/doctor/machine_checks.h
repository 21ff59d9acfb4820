// Checks of the machine: kernel, memory, driver, GPUs, links, clock.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_SERVER_DOCTOR_MACHINE_CHECKS_H_
#define ROUNDHOUSE_SERVER_DOCTOR_MACHINE_CHECKS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/wire/gpu_report.h"
#include "server/doctor/finding.h"
#include "server/doctor/measures.h"

namespace roundhouse {

// openat2 came with 5.6, close_range, which children are started with, 5.9.
inline constexpr int kOldestKernel[] = {5, 9};
// What the arena leaves to workers and the page cache.
inline constexpr double kMostHostMemoryShare = 0.9;
// From this much on small pages cost memory and time (docs/operations.md).
inline constexpr uint64_t kManyPagesBytes = uint64_t{16} << 30;

// `release` as uname says it: "6.1.0-21-amd64".
Finding CheckKernel(const std::string& release);

Finding CheckMemory(const MemoryMeasure& memory, uint64_t host_memory_bytes);
Finding CheckSwap(const MemoryMeasure& memory);

// GPUs copy from pinned pages, which count to the limit; nothing else is
// locked.  `limit_bytes` without a value: none.
Finding CheckMemoryLock(std::optional<uint64_t> limit_bytes,
                        uint64_t host_memory_bytes, DeviceKind devices);

// `setting` is the text of shmem_enabled ("always [advise] never"), "" where
// the kernel has none.
Finding CheckHugePages(const std::string& setting, uint64_t host_memory_bytes);

// `report` as the probe of server/gpu says it.
Finding CheckGpus(const absl::StatusOr<wire::GpuReport>& report,
                  DeviceKind devices);

// Lanes and generations below what GPU and slot can do.  An idle GPU lowers
// its generation by itself, so that one is told and not judged.
Finding CheckPcieLinks(const wire::GpuReport& report);

Finding CheckClock(const ClockMeasure& clock);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOCTOR_MACHINE_CHECKS_H_
