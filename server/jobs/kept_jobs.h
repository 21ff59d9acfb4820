// Jobs that run and wait with their memory, as they were told to or since what
// they save can't be written; and those that are saved, for another job needs
// their memory or their place.
//
// Who is to give way spill_choice.h says.  One that was told to pause is PAUSED
// then without memory; one that ran is QUEUED again, and comes back by itself.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_JOBS_KEPT_JOBS_H_
#define ROUNDHOUSE_SERVER_JOBS_KEPT_JOBS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "base/job_state.h"
#include "base/priority.h"
#include "server/admission/job_queue.h"
#include "server/arena/host_arena.h"
#include "server/job/job_reports.h"
#include "server/jobs/running_job.h"
#include "server/jobs/running_jobs.h"
#include "server/jobs/spill_choice.h"
#include "server/jobs/status_publisher.h"
#include "server/jobs/transitions.h"
#include "server/limits/sharing.h"
#include "server/loop/event_loop.h"
#include "server/store/store.h"

namespace roundhouse {

// Beside what a job saves: names, the job store, logs.
inline constexpr uint64_t kRoomMarginBytes = uint64_t{16} << 20;

class KeptJobs {
 public:
  // What it works with; all outlive it.
  struct World {
    EventLoop& loop;
    HostArena& arena;
    RunningJobs& running;
    JobStore& store;
    Transitions& transitions;
    StatusPublisher& status;
    const Sharing& sharing;
    int max_running_jobs = 0;
  };
  struct Calls {
    std::function<void()> counts_changed;  // of jobs by state
    std::function<void()> start_next;
    std::function<JobQueue::Turn(const JobOwner&)> turn_of;
  };

  KeptJobs(const World& world, const Calls& calls)
      : world_(world), calls_(calls) {}

  // Whether one more may run.
  bool HasPlace() const {
    return world_.running.PlacesTaken() < world_.max_running_jobs;
  }

  // --- waiting ---

  // What it saves can't be written (RunningJob::World::held).
  void OnHeld(const std::string& id, const HeldReport& report);
  // PAUSED with its memory; Ask's errors.  REQUIRES: its runner MayRest().
  absl::StatusOr<JobRecord> Rest(RunningJob& run);
  // One that waits for room, and is PAUSED already, rests from now on: it goes
  // on when it is told to.  Ask's errors.  REQUIRES: run.MayRestHeld().
  absl::StatusOr<JobRecord> RestHeld(RunningJob& run);
  // Ask's errors; kFailedPrecondition: no place is free.  One that rests is
  // saved and queued then.  REQUIRES: run.held().
  absl::StatusOr<JobRecord> GoOn(RunningJob& run);
  // Lets those go on that wait for room on the disk, where there is some.
  void GoOnWithRoom();

  // --- giving way ---

  // A job is saved for another one, and has not come to its end.
  bool Spilling() const;

  // Saves one that rests or waits for room, and gives its memory back; Ask's
  // errors.
  absl::StatusOr<JobRecord> GiveBack(RunningJob& run);
  // What follows once one that is saved is PAUSED; Ask's errors.  REQUIRES:
  // run.spilled().
  absl::StatusOr<JobRecord> FollowWith(RunningJob& run,
                                       RunningJob::AfterPause after);
  // Begins to save one, so that a job gets the bytes that it needs; they are
  // free later, and Calls::start_next comes.  Nothing where no job may give
  // way, or one does already.  Ask's errors.
  absl::Status FreeBytes(const SpillNeed& need);
  // The same of a place, which is free at once.
  bool MayFreePlace(Priority priority) const;
  absl::Status FreePlace(Priority priority);

 private:
  void ShowKept(RunningJob& run, JobReason reason);
  absl::StatusOr<JobRecord> Spill(RunningJob& run, const std::string& reason,
                                  RunningJob::AfterPause after);
  void GoOnIfRoom(RunningJob& run);
  std::vector<SpillCandidate> Candidates() const;
  absl::Status SpillFor(const SpillNeed& need, const std::string& what);

  const World world_;
  const Calls calls_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_KEPT_JOBS_H_
