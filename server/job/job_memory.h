// A running job's memory in the host arena: its training state, and the round
// buffers of the plan that its steps have now.
//
// Owned by the job's runner.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_JOB_JOB_MEMORY_H_
#define ROUNDHOUSE_SERVER_JOB_JOB_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/dispatch/dispatcher.h"
#include "scheduler/plan/plan.h"
#include "server/arena/host_arena.h"
#include "server/job/runner_options.h"
#include "server/planning/job_needs.h"
#include "server/planning/round_buffers.h"
#include "server/weights/training_state.h"

namespace roundhouse {

class JobMemory {
 public:
  // Both outlive it.
  JobMemory(HostArena& arena, const RunnerOptions& options)
      : arena_(arena), options_(options) {}
  ~JobMemory() { Release(); }
  JobMemory(const JobMemory&) = delete;
  JobMemory& operator=(const JobMemory&) = delete;

  // Takes everything, with the plan that a job begins with.  RESOURCE_EXHAUSTED
  // when the arena has no room, even without the bases that no job uses; other
  // errors as InitialPlan, BaseKey.
  absl::Status Allocate(int device_count);
  // `ready` comes once, when all pages are there or can't be.
  void WaitForPages(std::function<void(const absl::Status&)> ready);
  // Gives everything back; `ready` does not come any more.
  void Release();

  bool allocated() const { return state_ != nullptr && buffers_ != nullptr; }
  // The others REQUIRE: allocated().
  TrainingState& state() { return *state_; }
  const TrainingState& state() const { return *state_; }
  const RoundBuffers& buffers() const { return *buffers_; }
  const Plan& plan() const { return plan_; }
  // Another plan, and its buffers.  REQUIRES: no round uses those of now.
  void Adopt(const Plan& plan, std::unique_ptr<RoundBuffers> buffers);
  // The weights of all that trains are those of `version` now.
  void RaiseVersions(uint64_t version);

  // BaseKey of the base's files when it was looked up; "" without adapters.
  const std::string& base_key() const { return base_key_; }
  // What loads and saves take of the arena besides, when they come.
  uint64_t table_bytes() const { return table_bytes_; }
  // All 0 unless allocated().
  HostUse use() const;
  // As the dispatcher is to see the job.
  JobShape Shape() const;
  // Lines for the job's log.
  std::vector<std::string> Notes() const;

  HostArena& arena() { return arena_; }

 private:
  absl::Status TryAllocate(int device_count);

  HostArena& arena_;
  const RunnerOptions& options_;
  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<RoundBuffers> buffers_;
  Plan plan_;
  std::string base_key_;
  uint64_t table_bytes_ = 0;
  ArenaPages::Waiter wait_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOB_JOB_MEMORY_H_
