// JobRunner: a job that waits, with all its memory, for what it saves can't be
// written.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "server/jobs/runner.h"

namespace roundhouse {
namespace {

// Bytes of disk; what is copied into it counts as it is now.
uint64_t BytesOf(const DirectoryPlan& plan) {
  uint64_t bytes = plan.total_bytes;
  for (const auto& [name, text] : plan.texts) bytes += text.size();
  for (const std::string& path : plan.copied_files) {
    std::error_code error;
    const uint64_t copied = std::filesystem::file_size(path, error);
    if (!error) bytes += copied;
  }
  return bytes;
}

// RESOURCE_EXHAUSTED is the disk's, UNAVAILABLE host memory of the save itself.
JobReason ReasonOf(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ? JobReason::kStorageFull
         : absl::IsUnavailable(status)     ? JobReason::kHostMemory
                                           : JobReason::kStorageError;
}

}  // namespace

void JobRunner::OnWritten(const DirectoryWrite& write,
                          const absl::Status& status) {
  if (MayHold(write, status)) return Hold(write, status);
  const bool was_held = std::exchange(held_, std::nullopt).has_value();
  if (was_held) last_step_ns_ = MonotonicNs();  // no step took that long
  if (was_held && dispatching_) dispatcher().HoldSlots(id(), false);
  write.done(status);
  if (!was_held || !dispatching_) return;
  if (phase_ == Phase::kStepping && !outcome_.has_value()) {
    FailWithoutDevices("all of them were lost while the job waited");
  }
  CarryOut();
}

// A checkpoint that fails for another reason than space comes again, and what
// it has is no less safe than before; a result, and the save of a pause, are
// all that is left of the memory.
bool JobRunner::MayHold(const DirectoryWrite& write,
                        const absl::Status& status) const {
  // A name that somebody else has is not waited for.
  if (status.ok() || draining_ || absl::IsAlreadyExists(status)) return false;
  if (outcome_.has_value()) {
    return write.checkpoint && outcome_->state == JobState::kPaused &&
           outcome_->reason == JobReason::kNone;
  }
  return absl::IsResourceExhausted(status) || !write.checkpoint;
}

void JobRunner::Hold(const DirectoryWrite& write, const absl::Status& status) {
  held_ = HeldWrite{write};
  if (dispatching_) {
    // What is begun stays begun, for its gradients may be there already; slots
    // that wait for its weights would be in other jobs' way.
    dispatcher().HoldSlots(id(), true);
    CarryOut();
  }
  const JobState state = outcome_.has_value()           ? JobState::kPausing
                         : phase_ == Phase::kFinalizing ? JobState::kFinalizing
                                                        : JobState::kRunning;
  listener_->OnHeld(
      {.state = state,
       .reason = ReasonOf(status),
       .why = std::string(status.message()),
       .need_bytes = BytesOf(*write.plan),
       .directory =
           std::filesystem::path(write.plan->final_path).parent_path().string(),
       .saved_step = std::max<int64_t>(saved_step_, 0)});
}

void JobRunner::TryAgain() {
  ROUNDHOUSE_CHECK(held());
  held_->trying = true;
  saved_.begun_ns = MonotonicNs();
  WriteDirectory(held_->write);
}

// The job stops, and nobody waits for what it is held with any more.
void JobRunner::GiveUpHeld() {
  if (!held()) return;
  const DirectoryWrite write = std::exchange(held_, std::nullopt)->write;
  write.done(absl::CancelledError("the job stops"));
  AfterQuiet();
}

void JobRunner::Drain() {
  draining_ = true;
  if (held()) {
    Stop({JobState::kPaused, JobReason::kStorageFull, "", ""});
  } else {
    Pause();
  }
}

// What could not be read or written is nobody's mistake, and what was before is
// there.
JobOutcome JobRunner::OutcomeOf(const absl::Status& status) const {
  const std::string next =
      phase_ == Phase::kLoading
          ? "; resumed, it is tried again"
          : absl::StrCat("; resumed, it goes on after step ",
                         std::max<int64_t>(saved_step_, 0));
  return {JobState::kPaused, ReasonOf(status),
          absl::StrCat(std::string(status.message()), next), ""};
}

}  // namespace roundhouse
