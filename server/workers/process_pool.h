// The workers as processes: it has them forked from a nursery (nursery.h),
// talks to them, notices that one died or hangs, and starts it again.
//
// A death is reported once the process has been reaped and its socket drained.
// A device whose worker dies kMaxFruitlessDeaths times in a row without
// finishing anything is lost; the host and files workers are started again and
// again, at a bounded rate.  A device that is taken out has no process; once
// it is brought back, its worker is tried until it is up.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WORKERS_PROCESS_POOL_H_
#define ROUNDHOUSE_SERVER_WORKERS_PROCESS_POOL_H_

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
#include "base/wire/messages.h"
#include "server/arena/host_arena.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"
#include "server/workers/nursery.h"
#include "server/workers/replies.h"
#include "server/workers/work_watch.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

inline constexpr int kMaxFruitlessDeaths = 5;
// Messages waiting for room in one worker's socket.
inline constexpr size_t kMaxUnsentMessages = 1024;

struct ProcessPoolOptions {
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
  // The same of a device that was brought back and has not been up since.
  absl::Duration patient_delay = absl::Seconds(10);
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

class ProcessPool final : public WorkerPool {
 public:
  static absl::StatusOr<std::unique_ptr<ProcessPool>> Create(
      EventLoop& loop, HostArena& arena, const ProcessPoolOptions& options);
  // Kills what still runs.
  ~ProcessPool() override;

  // Has every process started.  NOT_FOUND, INTERNAL: the program could not be;
  // what is only short of descriptors or processes is tried again later.
  // REQUIRES: called once; `listener` outlives the pool.
  absl::Status Start(Listener* listener);

  // WorkerPool; a worker that does not take its messages is killed.
  uint64_t Send(WorkerId worker, wire::Body body,
                ReplyHandler* handler = nullptr) override;
  void Forget(const ReplyHandler* handler) override;
  // By cancel word, doorbell and message.
  void Withdraw(DeviceId device, uint64_t attempt) override;
  void TakeOut(DeviceId device, const std::string& why) override;
  void BringBack(DeviceId device) override;

  const WorkerInfo& info(WorkerId worker) const override {
    return workers_[Number(worker)].info;
  }

  // The driver says that something is wrong with the device's GPU, and its
  // worker may be in a call that never returns, which is not silence.  If it
  // has slots or samples and shows nothing of any for options.suspect_limit it
  // is killed, `why` the reason; one that goes on is trusted again.
  void Suspect(DeviceId device, const std::string& why);

  // Asks every worker to stop; those left after `grace` are killed.  `stopped`
  // is called when all are gone.
  void Stop(absl::Duration grace, std::function<void()> stopped);

 private:
  struct Worker {
    WorkerInfo info;
    bool awaited = false;  // from the nursery
    bool was_up = false;   // this process or one before it
    // It was brought back, and somebody may still have its GPU's memory: it is
    // tried until it is up, and not given up.
    bool patient = false;
    bool ended = false;  // its process; what it said may still be read
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

  ProcessPool(EventLoop& loop, HostArena& arena,
              const ProcessPoolOptions& options);

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
  void TellIfOut(WorkerId worker);
  // Asks it to end.
  void AskToStop(WorkerId worker);
  void GoBeforeCompute(WorkerId worker);
  void Deliver(WorkerId worker, const wire::Message& message);
  void ReadChannel(WorkerId worker);
  void FlushUnsent(WorkerId worker);
  void CloseDown(WorkerId worker, const absl::Status& why);
  // Unless this process has ended by then.
  void KillLater(WorkerId worker);
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
  ProcessPoolOptions options_;
  Listener* listener_ = nullptr;
  // By the number of compute threads, which libraries read when loaded.
  std::map<int, std::unique_ptr<Nursery>> nurseries_;
  std::vector<Worker> workers_;
  EventLoop::TimerId silence_timer_ = 0;
  bool stopping_ = false;
  std::function<void()> stopped_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_PROCESS_POOL_H_
