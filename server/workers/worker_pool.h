// The daemon's workers, as those see them who give them work: one per device,
// one host worker, one files worker.  ProcessPool (process_pool.h) has them as
// processes; tests/sim has others, in virtual time.
//
// A worker's death is reported only after all that it said has been: a
// slot-done counts (docs/design/wire.md).
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WORKERS_WORKER_POOL_H_
#define ROUNDHOUSE_SERVER_WORKERS_WORKER_POOL_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/wire/gpu_report.h"
#include "base/wire/messages.h"
#include "server/workers/replies.h"

namespace roundhouse {

enum class WorkerRole { kDevice, kHost, kFiles };

struct WorkerInfo {
  WorkerRole role = WorkerRole::kDevice;
  pid_t pid = 0;
  bool up = false;        // said hello
  bool lost = false;      // given up
  std::string taken_out;  // why (WorkerPool::TakeOut); "": it is not
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
    // It was given up, or its worker is gone since it was taken out.
    virtual void OnDeviceLost(DeviceId device, const std::string& why) = 0;
  };

  virtual ~WorkerPool() = default;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Sends a command as a new attempt, whose number it returns; 0 when the
  // worker is not up.  `handler` is told of its answers, or of its loss; null:
  // nobody is.  A worker that does not take its messages is killed.
  virtual uint64_t Send(WorkerId worker, wire::Body body,
                        ReplyHandler* handler = nullptr) = 0;
  // Tells it nothing any more: before a handler with commands goes.
  virtual void Forget(const ReplyHandler* handler) = 0;

  // Asks a device worker for a slot back: cancel word, doorbell, message.
  virtual void Withdraw(DeviceId device, uint64_t attempt) = 0;

  // Takes the device out of use: its worker is asked to end, or killed where it
  // does not, and OnDeviceLost follows, with `why`.  It is not started again
  // until BringBack.  No effect on one that is taken out.  REQUIRES: why is not
  // empty.
  virtual void TakeOut(DeviceId device, const std::string& why) = 0;
  // Starts the worker of a device that was taken out, or lost; no effect on
  // others.
  virtual void BringBack(DeviceId device) = 0;

  virtual const WorkerInfo& info(WorkerId worker) const = 0;
  bool up(WorkerId worker) const { return info(worker).up; }
  // Nobody starts the device's worker by himself.
  bool gone(DeviceId device) const {
    const WorkerInfo& worker = info(DeviceWorker(device));
    return worker.lost || !worker.taken_out.empty();
  }

  WorkerId DeviceWorker(DeviceId device) const {
    return static_cast<WorkerId>(Number(device));
  }
  WorkerId HostWorker() const { return static_cast<WorkerId>(device_count_); }
  WorkerId FilesWorker() const {
    return static_cast<WorkerId>(device_count_ + 1);
  }
  int device_count() const { return device_count_; }
  // One a device; empty: CPU devices.
  const std::vector<wire::Gpu>& gpus() const { return gpus_; }

 protected:
  WorkerPool(int device_count, std::vector<wire::Gpu> gpus)
      : device_count_(device_count), gpus_(std::move(gpus)) {}

 private:
  const int device_count_;
  const std::vector<wire::Gpu> gpus_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_WORKER_POOL_H_
