// What is known of how long jobs take, and the engine's part of a snapshot of
// how things stand (server/explain).
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_JOBS_POOL_OUTLOOK_H_
#define ROUNDHOUSE_SERVER_JOBS_POOL_OUTLOOK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/job_state.h"
#include "server/admission/job_queue.h"
#include "server/arena/host_arena.h"
#include "server/explain/measured_work.h"
#include "server/explain/pool_snapshot.h"
#include "server/explain/service_record.h"
#include "server/jobs/running_jobs.h"
#include "server/limits/sharing.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/store/store.h"
#include "server/usage/recent_use.h"

namespace roundhouse {

class PoolOutlook {
 public:
  // All outlive it.
  struct World {
    EventLoop& loop;
    const HostArena& arena;
    JobStore& store;
    RunningJobs& running;
  };
  explicit PoolOutlook(const World& world)
      : world_(world), background_(world.loop) {}

  // Who goes ahead of the first of the queue, which waits for its memory.
  struct Ahead {
    std::string job;  // it is being opened; "": none
    absl::Time next_look;
  };

  // Reads what earlier jobs took, beside the loop.
  void Load();
  // Once a second.
  void Tick(const ShareWeights& weights);
  // It has left the running jobs.
  void OnEnded(const RunningJob& job, JobState state);

  // What JobQueue keeps of a job for this.
  static JobQueue::Work WorkOf(const JobRecord& job);

  // How the queue and what limits it stand.
  struct Waiting {
    const JobQueue& queue;
    const JobQueue::TurnOf& turn_of;
    const RecentUse& recent;
    const Sharing& sharing;
    const SharedUse& used;
    std::string opening;  // as PoolSnapshot's
    std::string asked;    // "": none
    size_t most = 0;      // jobs of the queue
    // What of a job's need is there, since others share it.
    std::function<uint64_t(const std::string& id)> shared_bytes;
  };
  // But for what the engine alone knows: whether jobs start at all, how many
  // may, and the job that is asked about.
  PoolSnapshot Look(const Waiting& waiting) const;

 private:
  void PutQueue(const Waiting& waiting, PoolSnapshot& snapshot) const;
  void PutUse(const Waiting& waiting, PoolSnapshot& snapshot) const;
  void PutDevices(PoolSnapshot& snapshot) const;
  void PutMemory(PoolSnapshot& snapshot) const;
  ActiveJob Active(RunningJob& run) const;
  std::optional<JobLength> LengthOf(const RunningJob& run) const;
  std::optional<JobLength> LengthOf(const JobQueue::Work& work) const;
  // What a job's steps took, as far as it knows; nullopt: not yet.
  std::optional<JobLength> Measured(const RunningJob& run) const;

  const World world_;
  ServiceRecord service_;
  MeasuredWork measured_;
  Background background_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_POOL_OUTLOOK_H_
