#include "server/jobs/transitions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

// Whoever is over a limit has been refused himself.
bool IsFullDisk(const absl::Status& status) {
  return absl::IsResourceExhausted(status) &&
         ErrorReason(status) != FieldReason::kQuota;
}

}  // namespace

// What is wrong with the request, or with the job, stays wrong.
bool IsStoreRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAborted:
      return false;
    default:
      return ErrorReason(status) != FieldReason::kQuota;
  }
}

absl::Status StoreRefused(const absl::Status& status) {
  const std::string text = absl::StrCat(
      "the job store can't be written: ", std::string(status.message()),
      "; nothing was done");
  if (!IsFullDisk(status)) return absl::UnavailableError(text);
  const FieldReason reason = ErrorReason(status);
  return FieldError(
      absl::StatusCode::kResourceExhausted,
      reason == FieldReason::kNone ? FieldReason::kStorageFull : reason, "",
      text);
}

Transitions::Transitions(EventLoop& loop, JobStore& store, DiskReserve& reserve)
    : loop_(loop), store_(store), reserve_(reserve) {}

Transitions::~Transitions() {
  if (timer_.has_value()) loop_.CancelTimer(*timer_);
}

void Transitions::Want(const std::string& id, JobState to,
                       const TransitionInfo& info,
                       std::function<void()> stored) {
  const auto write = [this, id, to, info]() -> absl::Status {
    const absl::Status status = store_.Transition(id, to, info).status();
    if (!absl::IsFailedPrecondition(status)) return status;
    // A commit whose answer was lost: it is there already.
    const auto job = store_.Get(id);
    return job.ok() && job->state == to ? absl::OkStatus() : status;
  };
  Add({id, to, absl::StrCat("to ", JobStateName(to)), write,
       std::move(stored)});
}

void Transitions::Want(const std::string& id, const std::string& what,
                       std::function<absl::Status()> write,
                       std::function<void()> over) {
  Add({id, std::nullopt, what, std::move(write), std::move(over)});
}

absl::StatusOr<JobRecord> Transitions::Ask(const std::string& id, JobState to,
                                           const TransitionInfo& info) {
  return Ask(id, [&] { return store_.Transition(id, to, info); });
}

absl::StatusOr<JobRecord> Transitions::Ask(
    const std::string& id,
    const std::function<absl::StatusOr<JobRecord>()>& write) {
  RETURN_IF_ERROR(CheckAsks(id));
  absl::StatusOr<JobRecord> changed;
  const absl::Status status = Write([&] {
    changed = write();
    return changed.status();
  });
  if (IsStoreRefusal(status)) return StoreRefused(status);
  return changed;
}

absl::StatusOr<JobRecord> Transitions::Ask(const std::string& id,
                                           const JobDetails& details) {
  return Ask(id, [&]() -> absl::StatusOr<JobRecord> {
    RETURN_IF_ERROR(store_.SetDetails(id, details));
    return store_.Get(id);
  });
}

bool Transitions::Waits(const std::string& id) const {
  return std::any_of(wanted_.begin(), wanted_.end(),
                     [&](const Wanted& wanted) { return wanted.id == id; });
}

absl::Status Transitions::CheckAsks(const std::string& id) const {
  const auto first =
      std::find_if(wanted_.begin(), wanted_.end(),
                   [&](const Wanted& wanted) { return wanted.id == id; });
  if (first == wanted_.end()) return absl::OkStatus();
  const absl::Status refused = StoreRefused(
      refused_.ok() ? absl::UnavailableError("it is being asked") : refused_);
  return FieldError(refused.code(), ErrorReason(refused), "",
                    absl::StrCat(std::string(refused.message()), "; ", id,
                                 " waits for it (", first->what, ")"));
}

void Transitions::Add(Wanted wanted) {
  if (Waits(wanted.id)) {
    DropOldest(wanted.id);
    wanted_.push_back(std::move(wanted));
  } else if (const absl::Status status = Try(wanted); IsStoreRefusal(status)) {
    wanted_.push_back(std::move(wanted));
    TryLater();
  } else {
    End(wanted, status);
  }
}

void Transitions::End(const Wanted& wanted, const absl::Status& status) {
  if (status.ok() || !wanted.to.has_value()) wanted.stored();
}

// A transition is never given up.
void Transitions::DropOldest(const std::string& id) {
  const auto of_job = [&](const Wanted& wanted) { return wanted.id == id; };
  if (std::count_if(wanted_.begin(), wanted_.end(), of_job) <
      static_cast<int64_t>(kMaxWantedOfJob)) {
    return;
  }
  const auto oldest =
      std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& wanted) {
        return wanted.id == id && !wanted.to.has_value();
      });
  if (oldest == wanted_.end()) return;
  RH_LOG(kError) << id << ": " << oldest->what
                 << " is not stored: more waits for the job store";
  // Not while the queue is being changed.
  loop_.After(absl::ZeroDuration(), std::move(oldest->stored));
  wanted_.erase(oldest);
}

absl::Status Transitions::Write(const std::function<absl::Status()>& write) {
  const absl::Status status = write();
  if (!IsFullDisk(status) || !reserve_.GiveUp()) return status;
  RH_LOG(kWarning) << "the disk is full: its reserve goes to the job store";
  return write();
}

absl::Status Transitions::Try(const Wanted& wanted) {
  const absl::Status status = Write(wanted.write);
  const bool refused = IsStoreRefusal(status);
  // Once, however often it is asked again.
  if (!status.ok() && (!refused || refused_.ok())) {
    RH_LOG(kError) << wanted.id << " " << wanted.what << ": " << status
                   << (refused ? "; the job store is asked again" : "");
  }
  if (refused) refused_ = status;
  return status;
}

void Transitions::TryAll() {
  if (trying_) return;
  trying_ = true;
  std::set<std::string> refused;  // jobs
  bool any_stored = false;
  while (refused.size() < kMaxRefusedOfPass) {
    // From the first again each time: what follows from one changes the queue.
    const auto next = std::find_if(
        wanted_.begin(), wanted_.end(),
        [&](const Wanted& wanted) { return refused.count(wanted.id) == 0; });
    if (next == wanted_.end()) break;
    const absl::Status status = Try(*next);
    if (IsStoreRefusal(status)) {
      refused.insert(next->id);
      if (IsFullDisk(status)) break;  // for all jobs
      continue;
    }
    const Wanted done = std::move(*next);
    wanted_.erase(next);
    any_stored = true;
    End(done, status);
  }
  trying_ = false;
  if (wanted_.empty() && !refused_.ok()) {
    RH_LOG(kInfo) << "the job store takes writes again";
    refused_ = absl::OkStatus();
  }
  delay_ =
      any_stored ? kFirstStoreRetry : std::min(2 * delay_, kLongestStoreRetry);
  if (!wanted_.empty()) TryLater();
}

void Transitions::TryLater() {
  if (timer_.has_value()) return;
  timer_ = loop_.After(delay_, [this] {
    timer_.reset();
    TryAll();
  });
}

}  // namespace roundhouse
