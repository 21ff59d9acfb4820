// Whether a job fits this server: its plan on the devices, its host memory, its
// disk.
//
// Computes; asks the file system for free bytes and opens no file.
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_JOB_FIT_H_
#define ROUNDHOUSE_SERVER_ADMISSION_JOB_FIT_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/directory.h"
#include "server/api/job_engine.h"
#include "server/planning/device_room.h"
#include "server/planning/job_needs.h"
#include "server/planning/plan_limits.h"
#include "server/spec/spec.h"

namespace roundhouse {

// What the server has.
struct ServerRoom {
  int device_count = 0;
  DeviceRoom device;
  uint64_t host_bytes = 0;  // the arena's limit
  std::string state_dir;    // whose disk jobs are saved on
};

class JobFit {
 public:
  explicit JobFit(ServerRoom room) : room_(std::move(room)) {}

  const ServerRoom& room() const { return room_; }

  // The spec with what it leaves open; of gradient_groups as many as fit, since
  // more groups need more device memory for their sums.
  ResolvedSpec ResolveToFit(JobSpec spec, const ModelDirectory& model) const;
  // The plan that it would start with.  RESOURCE_EXHAUSTED (DEVICE_MEMORY) and
  // INVALID_ARGUMENT, with a field.
  absl::StatusOr<Plan> CheckPlan(const ResolvedSpec& spec,
                                 const ModelConfig& model) const;
  // Checks host and devices, and fills in `needs`.  RESOURCE_EXHAUSTED
  // (HOST_MEMORY).
  absl::Status CheckMemory(const ResolvedSpec& spec, const ModelConfig& model,
                           const Plan& plan, JobNeeds* needs) const;
  // Fills in `needs`.  RESOURCE_EXHAUSTED (STORAGE_FULL).
  absl::Status CheckFreeDisk(const ResolvedSpec& spec, const ModelConfig& model,
                             int64_t start_step, JobNeeds* needs) const;
  // For sequences of any length that the spec allows.
  absl::StatusOr<HostNeed> NeedOfSpec(const ResolvedSpec& spec,
                                      const ModelConfig& model) const;

 private:
  HostRoom HostRoomOf() const { return {room_.device_count, room_.host_bytes}; }
  PlanLimits LimitsOfJob(const ResolvedSpec& spec,
                         const ModelConfig& model) const;

  const ServerRoom room_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_JOB_FIT_H_
