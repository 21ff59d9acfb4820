// Jobs that wait to run, and those that could not be taken up for want of room
// on the disk and are tried again.
//
// Urgent jobs go first, backfill jobs last.  Of equal class those go that ran
// when an earlier daemon ended, or gave way to others, in the order of their
// ids: neither takes anybody's place for good.  Then come those of the project
// that had least of the devices for its share, of these those of its user who
// had least for his, then the one that has waited longest.  Who had how much
// lies elsewhere, and may be another at each call.
//
// A plain container; runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_JOB_QUEUE_H_
#define ROUNDHOUSE_SERVER_ADMISSION_JOB_QUEUE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/priority.h"
#include "scheduler/share/fair_shares.h"

namespace roundhouse {

// For a disk that has room: a quota may be full, or it was there for a moment.
// Each try waits twice as long: it may take a large disk to its end again.
inline constexpr absl::Duration kRetryUntaken = absl::Seconds(5);
inline constexpr absl::Duration kMostRetryUntaken = absl::Minutes(10);

class JobQueue {
 public:
  // What it does, as far as that says how long it takes.
  struct Work {
    uint64_t kind = 0;  // that of jobs whose steps do the same; 0: not known
    int64_t steps = 0;  // that are left; 0: not known
  };
  struct Queued {
    std::string id;
    absl::Time since;
    Priority priority = Priority::kNormal;
    JobOwner owner = {};
    std::optional<uint64_t> host_bytes = {};  // that it needs, once known
    bool ran = false;                         // and is to go on
    Work work = {};
    // The first start that was expected of it: who goes ahead of it makes it no
    // later (scheduler/forecast/fill_in.h).
    std::optional<absl::Time> promised = {};
  };

  // What an owner's project had of the devices, over its share, and what he had
  // in it over his: the lower goes first.
  struct Turn {
    double project = 0;
    double user = 0;
    auto operator<=>(const Turn&) const = default;
  };
  using TurnOf = std::function<Turn(const JobOwner&)>;

  bool empty() const { return jobs_.empty(); }
  size_t size() const { return jobs_.size(); }

  // It has waited for less than those of its class.
  void Add(const Queued& job);
  // It has waited for longer than those of its class with later ids.
  void AddInOrder(const Queued& job);
  // The first of those that may start; null: none.
  const Queued* First(const TurnOf& turn_of,
                      const std::function<bool(const Queued&)>& may) const;
  // The first `most` of all, in the order in which they go.
  std::vector<const Queued*> InOrder(const TurnOf& turn_of, size_t most) const;
  // Whose they are, once for each.
  std::vector<JobOwner> Owners() const;
  // Null: it is not here.
  const Queued* Find(const std::string& id) const;
  // By class, then by age.
  const std::deque<Queued>& jobs() const { return jobs_; }
  // No effect on one that is promised to start already, or is not here.
  void Promise(const std::string& id, absl::Time start);
  // What it needs is known now.
  void SetHostBytes(const std::string& id, uint64_t bytes);
  void Remove(const std::string& id);
  // To where AddInOrder puts it with this priority; no effect on what is not
  // here.
  void SetPriority(const std::string& id, Priority priority);

  // The job is PAUSED for want of room before it ran: it is due once more,
  // later each time.
  void WaitForRoom(const std::string& id, absl::Time now);
  // The first time of one that an earlier daemon left so.
  void WaitForRoomAgain(const std::string& id, absl::Time now);
  bool WaitsForRoom(const std::string& id) const {
    return without_room_.contains(id);
  }
  // It goes on when it is told to, or does not wait any more.
  void ForgetRoom(const std::string& id) { without_room_.erase(id); }
  // The ids of the jobs that wait for room.
  std::vector<std::string> WithoutRoom() const;
  bool IsDue(const std::string& id, absl::Time now) const;

 private:
  struct Untaken {
    absl::Time due;  // of the next try
    int tries = 0;
  };

  std::deque<Queued> jobs_;  // by class, then by age
  std::map<std::string, Untaken> without_room_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_JOB_QUEUE_H_
