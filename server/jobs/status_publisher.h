// What the status page shows of jobs and devices, once a second, and which
// colors its jobs have.
//
// Runs on the event loop's thread, but for host_used_bytes.
#ifndef ROUNDHOUSE_SERVER_JOBS_STATUS_PUBLISHER_H_
#define ROUNDHOUSE_SERVER_JOBS_STATUS_PUBLISHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/job_state.h"
#include "server/admission/job_queue.h"
#include "server/devices/device_keeper.h"
#include "server/jobs/running_jobs.h"
#include "server/observe/status_board.h"

namespace roundhouse {

class StatusPublisher {
 public:
  // `board` null: nobody looks.  Outlives it.
  StatusPublisher(StatusBoard* board, int max_running_jobs,
                  uint64_t host_limit_bytes)
      : board_(board),
        max_running_jobs_(max_running_jobs),
        host_limit_bytes_(host_limit_bytes) {}

  // When the daemon started.
  absl::Time start_time() const { return start_time_; }
  // Bytes of the arena in use, as of the last second; any thread.
  uint64_t host_used_bytes() const { return host_used_bytes_; }
  void SetHostUsed(uint64_t bytes) { host_used_bytes_ = bytes; }

  // One that no running job has, as far as there are any.
  static int ChooseColor(const std::string& id, const RunningJobs& running);

  // Ignored unless PAUSED or final.  `color`: -1 of a job that did not run.
  void ShowEnded(const std::string& id, int color, JobState state,
                 JobReason reason);
  // It is under way again.
  void HideEnded(const std::string& id);

  // What is shown beside what has ended.
  struct Now {
    RunningJobs& running;
    const DeviceKeeper& keeper;
    const JobQueue& queue;
    JobQueue::TurnOf turn_of;
    size_t validating = 0;
    bool stopping = false;
  };
  void Publish(const Now& now) const;

 private:
  StatusBoard* const board_;
  const int max_running_jobs_;
  const uint64_t host_limit_bytes_;
  const absl::Time start_time_ = WallTime();
  std::atomic<uint64_t> host_used_bytes_{0};
  std::deque<StatusEnded> ended_;  // the newest last
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_STATUS_PUBLISHER_H_
