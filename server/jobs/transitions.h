// The one door through which what the store has of a job changes.
//
// What has happened to a job is *wanted*: it is stored, and what follows from
// it is carried out only then.  A store that refuses (a full disk, an I/O
// error) is asked again, at growing intervals, until it takes it, and nothing
// else of that job is stored before.  On a full disk the reserve is given up
// first (disk_reserve.h).
//
//   transitions.Want(id, JobState::kSucceeded, {}, [] { start the next one });
//
// What somebody asks for is stored at once or not done at all:
//
//   ASSIGN_OR_RETURN(job, transitions.Ask(id, JobState::kCancelling, {}));
//
// What is wanted and not stored when the daemon ends is lost with it; the next
// one finds the job as it is in the store, and takes it up from there.
//
// Runs on the event loop's thread, and blocks it for about an fsync a write.
#ifndef ROUNDHOUSE_SERVER_JOBS_TRANSITIONS_H_
#define ROUNDHOUSE_SERVER_JOBS_TRANSITIONS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/job_state.h"
#include "server/loop/event_loop.h"
#include "server/store/disk_reserve.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr absl::Duration kFirstStoreRetry = absl::Milliseconds(50);
inline constexpr absl::Duration kLongestStoreRetry = absl::Seconds(2);
// How many of one job wait; beyond it the oldest that is no transition is given
// up.
inline constexpr size_t kMaxWantedOfJob = 64;
// Whether a pass goes on after: some rows may be refused and others not.
inline constexpr size_t kMaxRefusedOfPass = 16;

class Transitions {
 public:
  // All outlive it.
  Transitions(EventLoop& loop, JobStore& store, DiskReserve& reserve);
  ~Transitions();
  Transitions(const Transitions&) = delete;
  Transitions& operator=(const Transitions&) = delete;

  // Stores that the job is in this state, now or later, then calls `stored`;
  // perhaps before it returns.  A transition that the lifecycle does not have
  // is logged and dropped, with its `stored`.
  void Want(
      const std::string& id, JobState to, const TransitionInfo& info,
      std::function<void()> stored = [] {});
  // The same for what is no transition: details, a checkpoint, an event.
  // `what` is for the log.  `write` may run several times; it must be as right
  // twice as once.  `over` follows in any case, perhaps before this returns:
  // once it is stored, or given up.
  void Want(
      const std::string& id, const std::string& what,
      std::function<absl::Status()> write, std::function<void()> over = [] {});

  // Now or not at all.  NOT_FOUND and FAILED_PRECONDITION are the store's;
  // RESOURCE_EXHAUSTED (STORAGE_FULL) and UNAVAILABLE: it can't be written, or
  // something of this job still waits for it; nothing was done.
  absl::StatusOr<JobRecord> Ask(const std::string& id, JobState to,
                                const TransitionInfo& info);

  // The same for what is no transition; other errors than these are `write`'s.
  absl::StatusOr<JobRecord> Ask(
      const std::string& id,
      const std::function<absl::StatusOr<JobRecord>()>& write);
  absl::StatusOr<JobRecord> Ask(const std::string& id,
                                const JobDetails& details);

  // Something that the job wants stored is not.
  bool Waits(const std::string& id) const;
  // Ask's error while it does; OK otherwise.
  absl::Status CheckAsks(const std::string& id) const;
  // Asks the store once more for all that waits.
  void TryAll();

 private:
  struct Wanted {
    std::string id;
    std::optional<JobState> to;  // none: no transition
    std::string what;
    std::function<absl::Status()> write;
    std::function<void()> stored;  // no transition: or given up
  };

  void Add(Wanted wanted);
  absl::Status Try(const Wanted& wanted);
  // What follows from one that is asked for no more.
  static void End(const Wanted& wanted, const absl::Status& status);
  absl::Status Write(const std::function<absl::Status()>& write);
  void DropOldest(const std::string& id);
  void TryLater();

  EventLoop& loop_;
  JobStore& store_;
  DiskReserve& reserve_;
  std::deque<Wanted> wanted_;  // oldest first
  bool trying_ = false;        // TryAll is on the stack
  absl::Status refused_;       // the store's last answer to what waits
  absl::Duration delay_ = kFirstStoreRetry;
  std::optional<EventLoop::TimerId> timer_;
};

// Whether the store can't be written now; a later write may go through.
bool IsStoreRefusal(const absl::Status& status);
// Such a refusal for whoever asked.
absl::Status StoreRefused(const absl::Status& status);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_TRANSITIONS_H_
