// The jobs that run, with all that computes for them: the dispatcher, the queue
// to the files worker, base weights that they share, and what is known of the
// devices.  It is the worker pool's listener, and passes on what workers do.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_JOBS_RUNNING_JOBS_H_
#define ROUNDHOUSE_SERVER_JOBS_RUNNING_JOBS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/wire/messages.h"
#include "scheduler/share/fair_shares.h"
#include "server/arena/host_arena.h"
#include "server/jobs/running_job.h"
#include "server/limits/sharing.h"
#include "server/loop/event_loop.h"
#include "server/observe/device_reports.h"
#include "server/observe/metrics.h"
#include "server/observe/timing_log.h"
#include "server/observe/trace_recorder.h"
#include "server/observe/user_reports.h"
#include "server/sample/sampler.h"
#include "server/steps/dispatch_loop.h"
#include "server/usage/usage_book.h"
#include "server/weights/base_weights.h"
#include "server/workers/files_line.h"
#include "server/workers/peer_group.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

// What rounding each of a job's allocations up to pages may add.
inline constexpr uint64_t kRoundingBytes = 64 << 10;

class RunningJobs final : public WorkerPool::Listener {
 public:
  // All references outlive it, and so do the options' samples.
  RunningJobs(EventLoop& loop, HostArena& arena, WorkerPool& pool,
              ServerMetrics& metrics, const DeviceReportsOptions& devices,
              const PeerGroup::Options& peers);

  // It is told of workers, too; null: it is not.
  void set_sampler(Sampler* sampler) { sampler_ = sampler; }

  // --- the jobs, by id ---

  using Jobs = std::map<std::string, std::shared_ptr<RunningJob>>;
  const Jobs& jobs() const { return jobs_; }
  bool empty() const { return jobs_.empty(); }
  // Null: it does not run.
  RunningJob* Find(const std::string& id) const;
  // `tell` may end some.
  void ForEach(const std::function<void(RunningJob&)>& tell);
  void Add(std::shared_ptr<RunningJob> job);
  // It has ended.  REQUIRES: Find(id).
  std::shared_ptr<RunningJob> Take(const std::string& id);
  // One that was taken still has its memory.
  bool FreesMemory() const;
  // How many do not wait with their memory.
  int64_t PlacesTaken() const;
  // Whose they are, as PlacesTaken counts.
  std::vector<JobOwner> Owners() const;
  // Who has memory, and how much of it, those that wait with it among them.
  std::vector<HostHolder> HostHolders() const;
  // What they need of host memory, those that wait with it among them.
  OwnerUse HostNeeds() const;
  // What they take of the arena when they load and save.
  uint64_t TableBytes() const;
  // What they have of it.
  void PublishArena(uint64_t used_bytes);
  // What users have, and those of jobs that wait to start.
  void PublishUsers(const std::vector<JobOwner>& queued,
                    const ShareWeights& weights);
  // To be called when a job begins or ends to have steps.
  void UpdateBusy();

  // --- what computes for them; all live as long as this ---

  BaseCache& bases() { return bases_; }
  FilesLine& files_line() { return files_line_; }
  DispatchLoop& dispatch() { return dispatch_; }
  DeviceReports& devices() { return devices_; }
  UserReports& users() { return users_; }
  TraceRecorder& recorder() { return recorder_; }

 private:
  // WorkerPool::Listener
  void OnWorkerUp(WorkerId worker) override;
  void OnMessage(WorkerId worker, const wire::Message& message) override;
  void OnWorkerDown(WorkerId worker, const std::string& why) override;
  void OnStartFailed(WorkerId worker, const std::string& why) override;
  void OnDeviceLost(DeviceId device, const std::string& why) override;

  bool IsDevice(WorkerId worker) const;
  void Note(const std::string& text);

  WorkerPool& pool_;
  ServerMetrics& metrics_;
  TimingLog* const samples_;
  BaseCache bases_;
  FilesLine files_line_;
  DispatchLoop dispatch_;
  DeviceReports devices_;
  UserReports users_;
  TraceRecorder recorder_{devices_.ledgers()};
  Sampler* sampler_ = nullptr;
  std::vector<std::weak_ptr<RunningJob>> taken_;
  Jobs jobs_;  // dies first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_RUNNING_JOBS_H_
