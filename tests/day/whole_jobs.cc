#include "tests/day/whole_jobs.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"

namespace roundhouse::day {
namespace {

class Pool {
 public:
  Pool(const TeamDay& day, WholeJobRule rule) : day_(day), rule_(rule) {
    run_.jobs.resize(day.jobs.size());
  }

  DayRun Run() {
    size_t coming = 0;
    while (coming < day_.jobs.size() || !queue_.empty() || !running_.empty()) {
      now_ = NextTime(coming);
      EndThoseDue();
      while (coming < day_.jobs.size() && day_.jobs[coming].submitted <= now_) {
        Enqueue(coming++);
      }
      ServeLoan();
      StartThoseThatMay();
    }
    return std::move(run_);
  }

 private:
  struct Running {
    absl::Duration began;
    absl::Duration ends;
    int devices = 0;
  };

  bool Lending() const {
    return now_ >= day_.loan.from && now_ < day_.loan.until;
  }

  // The first thing after now_ that happens.
  absl::Duration NextTime(size_t coming) const {
    absl::Duration next = absl::InfiniteDuration();
    const auto consider = [&](absl::Duration time) {
      if (time > now_) next = std::min(next, time);
    };
    if (coming < day_.jobs.size()) {
      next = std::max(now_, day_.jobs[coming].submitted);
    }
    for (const auto& [job, running] : running_) {
      consider(running.ends);
      consider(day_.jobs[job].cancelled);
    }
    for (const size_t job : queue_) consider(day_.jobs[job].cancelled);
    consider(day_.loan.from);
    consider(day_.loan.until);
    ROUNDHOUSE_CHECK(next < absl::InfiniteDuration()) << "jobs wait for ever";
    return next;
  }

  int AskedOf(size_t job) const {
    const int most = kDevices - (Lending() ? 1 : 0);
    if (rule_ == WholeJobRule::kWholePool) return most;
    return std::min(most, DevicesAskedOf(day_.jobs[job]));
  }

  void Enqueue(size_t job) {
    const auto behind =
        day_.jobs[job].urgent
            ? std::find_if(queue_.begin(), queue_.end(),
                           [this](size_t i) { return !day_.jobs[i].urgent; })
            : queue_.end();
    queue_.insert(behind, job);
  }

  void EndThoseDue() {
    for (auto it = running_.begin(); it != running_.end();) {
      const auto& [job, running] = *it;
      const absl::Duration end =
          std::min(running.ends, day_.jobs[job].cancelled);
      if (end > now_) {
        ++it;
        continue;
      }
      JobRun& ran = run_.jobs[job];
      ran.ended = end;
      ran.cancelled = end < running.ends;
      ran.device_time = ran.cancelled ? running.devices * (end - running.began)
                                      : DeviceTimeOf(day_.jobs[job]);
      run_.services.push_back({day_.jobs[job].user, running.began, end});
      free_ += running.devices;
      it = running_.erase(it);
    }
    const auto given_up = [this](size_t job) {
      if (day_.jobs[job].cancelled > now_) return false;
      run_.jobs[job].ended = day_.jobs[job].cancelled;
      run_.jobs[job].cancelled = true;
      return true;
    };
    queue_.erase(std::remove_if(queue_.begin(), queue_.end(), given_up),
                 queue_.end());
  }

  void ServeLoan() {
    if (Lending() && !run_.lent.has_value() && free_ > 0) {
      run_.lent = now_;
      lent_ = true;
      --free_;
    }
    if (Lending() || !std::exchange(lent_, false)) return;
    ++free_;
  }

  void StartThoseThatMay() {
    while (!queue_.empty() && AskedOf(queue_.front()) <= free_) {
      Start(queue_.front());
      queue_.pop_front();
    }
    if (rule_ == WholeJobRule::kBackfill && !queue_.empty()) Backfill();
  }

  void Start(size_t job) {
    const int devices = AskedOf(job);
    free_ -= devices;
    run_.jobs[job].began = now_;
    running_[job] = {.began = now_,
                     .ends = now_ + DeviceTimeOf(day_.jobs[job]) / devices,
                     .devices = devices};
  }

  // When the first of the queue will start, and how many devices are free then
  // that it does not need.
  struct Reservation {
    absl::Duration at;
    int left = 0;
  };
  Reservation ReservationOfFirst() const {
    std::vector<std::pair<absl::Duration, int>> ends;
    for (const auto& [job, running] : running_) {
      ends.emplace_back(running.ends, running.devices);
    }
    if (lent_) ends.emplace_back(day_.loan.until, 1);
    std::sort(ends.begin(), ends.end());
    // A device that is still to be lent goes first.
    const bool to_lend = Lending() && !run_.lent.has_value();
    const int needed = AskedOf(queue_.front()) + (to_lend ? 1 : 0);
    int free = free_;
    for (const auto& [at, devices] : ends) {
      free += devices;
      if (free >= needed) return {at, free - needed};
    }
    return {absl::InfiniteDuration(), 0};
  }

  void Backfill() {
    Reservation first = ReservationOfFirst();
    for (size_t i = 1; i < queue_.size();) {
      const size_t job = queue_[i];
      const int devices = AskedOf(job);
      const absl::Duration ends = now_ + DeviceTimeOf(day_.jobs[job]) / devices;
      const bool over = ends <= first.at;
      if (devices > free_ || (!over && devices > first.left)) {
        ++i;
        continue;
      }
      if (!over) first.left -= devices;
      Start(job);
      queue_.erase(queue_.begin() + static_cast<int64_t>(i));
    }
  }

  const TeamDay& day_;
  const WholeJobRule rule_;
  DayRun run_;
  absl::Duration now_ = -absl::InfiniteDuration();
  int free_ = kDevices;
  bool lent_ = false;
  std::deque<size_t> queue_;
  std::map<size_t, Running> running_;
};

}  // namespace

DayRun RunWholeJobs(const TeamDay& day, WholeJobRule rule) {
  return Pool(day, rule).Run();
}

}  // namespace roundhouse::day
