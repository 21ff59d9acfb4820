#include "worker/board/compute_turns.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"

namespace roundhouse::worker {

namespace {

constexpr int64_t kSpare = 8;

}  // namespace

int64_t MayBeginAt(int64_t now_ns, int64_t since_ns,
                   std::optional<TimeRange> expected, int64_t takes_ns) {
  const TimeRange range = expected.value_or(TimeRange());
  const int64_t end_ns = now_ns + takes_ns + takes_ns / kSpare;
  if (expected.has_value() && end_ns <= since_ns + range.shortest_ns) {
    return now_ns;
  }
  return std::max(now_ns, since_ns + range.longest_ns + takes_ns);
}

// --- the compute thread ---

void ComputeTurns::BeginWait(const WaitPlace& place,
                             std::shared_ptr<Event> queued) {
  {
    MutexLock lock(mutex_);
    waiting_ = true;
    queued_ = std::move(queued);
    place_ = place;
    since_ns_ = MonotonicNs();
    expected_ = waits_.Range(place);
  }
  changed_.NotifyAll();
}

void ComputeTurns::EndWait() {
  MutexLock lock(mutex_);
  if (place_.what != WaitPlace::For::kNothingKnown) {
    waits_.Note(place_, MonotonicNs() - since_ns_);
  }
  wanted_ = true;
  while (taken_ && !stopping_) changed_.Wait(mutex_);
  wanted_ = waiting_ = false;
  queued_ = nullptr;
}

// --- the backfill thread ---

bool ComputeTurns::MayTake(int64_t now_ns, int64_t takes_ns) const {
  return waiting_ && !wanted_ &&
         MayBeginAt(now_ns, since_ns_, expected_, takes_ns) <= now_ns;
}

bool ComputeTurns::Take(int64_t takes_ns,
                        const std::function<bool()>& given_up) {
  MutexLock lock(mutex_);
  while (!stopping_ && !given_up()) {
    const int64_t now_ns = MonotonicNs();
    if (!waiting_ || wanted_) {
      changed_.Wait(mutex_);
    } else if (!MayTake(now_ns, takes_ns)) {
      const int64_t begin_ns =
          MayBeginAt(now_ns, since_ns_, expected_, takes_ns);
      changed_.WaitUntil(
          mutex_, CondVar::DeadlineIn(absl::Nanoseconds(begin_ns - now_ns)));
    } else if (const std::shared_ptr<Event> queued = queued_) {
      mutex_.Unlock();
      const absl::Status done = queued->Wait();
      mutex_.Lock();
      if (!done.ok()) return false;
      if (queued_ == queued) queued_ = nullptr;
    } else {
      taken_ = true;
      return true;
    }
  }
  return false;
}

bool ComputeTurns::MayKeep(int64_t takes_ns) const {
  MutexLock lock(mutex_);
  return taken_ && MayTake(MonotonicNs(), takes_ns);
}

bool ComputeTurns::has() const {
  MutexLock lock(mutex_);
  return taken_;
}

void ComputeTurns::GiveBack() {
  {
    MutexLock lock(mutex_);
    taken_ = false;
  }
  changed_.NotifyAll();
}

// --- anybody ---

void ComputeTurns::Wake() {
  { MutexLock lock(mutex_); }
  changed_.NotifyAll();
}

void ComputeTurns::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace roundhouse::worker
