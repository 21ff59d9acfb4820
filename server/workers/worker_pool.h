// The daemon's worker processes: one per device, one host worker, one files
// worker.  Has them forked from a nursery (server/workers/nursery.h), talks to
// them, notices that one died or hangs, starts it again.
//
// A worker's death is reported only after the process has been reaped and its
// socket drained, so that a slot-done found there counts (docs/design/wire.md).
// A device whose worker dies kMaxFruitlessDeaths times in a row without
// finishing anything is lost; the host and files workers are started again and
// again, at a bounded rate.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WORKERS_WORKER_POOL_H_
#define ROUNDHOUSE_SERVER_WORKERS_WORKER_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "base/ids.h"
#include "base/wire/channel.h"
#include "base/wire/gpu_report.h"
#include "server/arena/host_arena.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"
#include "server/workers/nursery.h"
#include "server/workers/replies.h"
#include "server/workers/work_watch.h"

namespace roundhouse {

inline constexpr int kMaxFruitlessDeaths = 5;
// Messages waiting for room in one worker's socket.
inline constexpr size_t kMaxUnsentMessages = 1024;

enum class WorkerRole { kDevice, kHost, kFiles };

struct WorkerPoolOptions {
  std::string worker_program;
  int device_count = 1;
  std::vector<wire::Gpu> gpus;  // one a device; none: CPU devices
  int device_threads = 1;
  int host_threads = 1;
  uint64_t device_memory_bytes = uint64_t{1} << 30;
  double link_gbps = 0;  // 0: as fast as memory
  // Device workers exchange sums (wire::kPeerScratchBytes of each device).
  bool peers = false;
  // Device workers' message loops go before compute (dispatch_priority.h).
  bool before_compute = false;
  int lock_fd = -1;  // of the daemon; inherited by every worker
  // A worker that is up and says nothing for this long is killed.
  absl::Duration heartbeat_limit = absl::Seconds(30);
  // A process that has not said Hello this long after it was forked is killed:
  // a driver may hang while it is initialised.  On a machine of eight GPUs that
  // keep no state the driver alone takes tens of seconds.
  absl::Duration start_limit = absl::Minutes(2);
  // Before the next start of a worker that died without having done anything,
  // from the second time on.
  absl::Duration restart_delay = absl::Seconds(1);
  // What a worker whose GPU is suspected (Suspect) has to show something of
  // its work within, or it is killed.
  absl::Duration suspect_limit = absl::Minutes(2);
  // A device's worker ended with wire::kUnableExit before it ever was up; `why`
  // has its last words.  It is not started again; without this function it is,
  // as any other that died.
  std::function<void(const std::string& why)> on_unable;
  // Test only: per worker, the --kill-at of its first, second ... process.
  std::map<WorkerId, std::deque<std::string>> kill_at;
};

struct WorkerInfo {
  WorkerRole role = WorkerRole::kDevice;
  pid_t pid = 0;
  bool up = false;    // said hello
  bool lost = false;  // given up
  int starts = 0;
  uint64_t pinned_bytes = 0;  // of the arena, as of its last heartbeat
  // As its Hello says.
  uint64_t h2d_bytes_per_second = 0;
  uint64_t d2h_bytes_per_second = 0;
};

class WorkerPool {
 public:
  // Calls come on the loop's thread, never from within a call into the pool.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnWorkerUp(WorkerId worker) = 0;
    // All that workers say, before whoever sent the command is told: for who
    // counts and measures, and for what answers no command.
    virtual void OnMessage(WorkerId worker, const wire::Message& message) = 0;
    // `why` says how it ended, with the end of its stderr.  Whoever has
    // commands with it has been told that they are lost.
    virtual void OnWorkerDown(WorkerId worker, const std::string& why) = 0;
    // It ended, or was killed, before it was up.  It is started again, or
    // OnDeviceLost follows.
    virtual void OnStartFailed(WorkerId worker, const std::string& why) {}
    virtual void OnDeviceLost(DeviceId device, const std::string& why) = 0;
  };

  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(
      EventLoop& loop, HostArena& arena, const WorkerPoolOptions& options);
  // Kills what still runs.
  ~WorkerPool();

  // Has every process started.  NOT_FOUND, INTERNAL: the program could not be;
  // what is only short of descriptors or processes is tried again later.
  // REQUIRES: called once; `listener` outlives the pool.
  absl::Status Start(Listener* listener);

  // Sends a command as a new attempt, whose number it returns; 0 when the
  // worker is not up.  `handler` is told of its answers, or of its loss; null:
  // nobody is.  A worker that does not take its messages is killed.
  uint64_t Send(WorkerId worker, wire::Body body,
                ReplyHandler* handler = nullptr);
  // Tells it nothing any more: before a handler with commands goes.
  void Forget(const ReplyHandler* handler);

  // Asks a device worker for a slot back: cancel word, doorbell, message.
  void Withdraw(DeviceId device, uint64_t attempt);

  // The driver says that something is wrong with the device's GPU, and its
  // worker may be in a call that never returns, which is not silence.  If it
  // has slots or samples and shows nothing of any for options.suspect_limit it
  // is killed, `why` the reason; one that goes on is trusted again.
  void Suspect(DeviceId device, const std::string& why);

  // Asks every worker to stop; those left after `grace` are killed.  `stopped`
  // is called when all are gone.
  void Stop(absl::Duration grace, std::function<void()> stopped);

  WorkerId DeviceWorker(DeviceId device) const {
    return static_cast<WorkerId>(Number(device));
  }
  WorkerId HostWorker() const {
    return static_cast<WorkerId>(options_.device_count);
  }
  WorkerId FilesWorker() const {
    return static_cast<WorkerId>(options_.device_count + 1);
  }
  int device_count() const { return options_.device_count; }
  // One a device; empty: CPU devices.
  const std::vector<wire::Gpu>& gpus() const { return options_.gpus; }
  const WorkerInfo& info(WorkerId worker) const {
    return workers_[Number(worker)].info;
  }
  bool up(WorkerId worker) const { return info(worker).up; }

 private:
  struct Worker {
    WorkerInfo info;
    bool awaited = false;  // from the nursery
    bool was_up = false;   // this process or one before it
    bool ended = false;    // its process; what it said may still be read
    std::unique_ptr<ChildProcess> process;
    std::unique_ptr<wire::Channel> channel;
    std::deque<wire::Message> unsent;
    bool blocked = false;  // its socket is full: the loop says when it is not
    uint64_t next_attempt = 1;
    int fruitless_deaths = 0;
    int64_t last_heard_ns = 0;  // of one that is not up: when it was forked
    std::string killed_for;     // by the pool: why
    WorkWatch work;             // of this process
    Replies replies;
  };

  WorkerPool(EventLoop& loop, HostArena& arena,
             const WorkerPoolOptions& options);

  Worker& At(WorkerId worker) { return workers_[Number(worker)]; }
  int Threads(WorkerId worker) const;
  Nursery& NurseryOf(WorkerId worker);
  absl::Status Spawn(WorkerId worker);
  std::vector<std::string> Arguments(WorkerId worker);
  struct Ends {  // the daemon's, of what a worker inherits
    std::unique_ptr<wire::Channel> channel;
    Descriptor errors;
  };
  void OnSpawned(WorkerId worker, const absl::StatusOr<pid_t>& pid, Ends& ends);
  absl::Status Adopt(WorkerId worker, pid_t pid, Ends& ends);
  void TellIfStopped();
  void GoBeforeCompute(WorkerId worker);
  void Deliver(WorkerId worker, const wire::Message& message);
  void ReadChannel(WorkerId worker);
  void FlushUnsent(WorkerId worker);
  void CloseDown(WorkerId worker, const absl::Status& why);
  void Drain(WorkerId worker);
  void OnExit(WorkerId worker, int wait_status);
  bool IsUnable(WorkerId worker, int wait_status) const;
  void Restart(WorkerId worker, const std::string& why);
  void SpawnLater(WorkerId worker, absl::Duration delay);
  void KillFor(Worker& worker, const std::string& reason);
  absl::Duration LimitOf(const Worker& worker) const;
  void CheckSilence();
  void CheckSilenceLater();

  EventLoop& loop_;
  HostArena& arena_;
  WorkerPoolOptions options_;
  Listener* listener_ = nullptr;
  // By the number of compute threads, which libraries read when loaded.
  std::map<int, std::unique_ptr<Nursery>> nurseries_;
  std::vector<Worker> workers_;
  EventLoop::TimerId silence_timer_ = 0;
  bool stopping_ = false;
  std::function<void()> stopped_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_WORKER_POOL_H_
