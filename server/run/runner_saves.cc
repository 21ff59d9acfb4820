// JobRunner: what it saves, how it ends, and a job that waits, with all its
// memory, for what it saves can't be written.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/run/runner.h"

namespace roundhouse {

// --- saves ---

JobSaver::Snapshot JobRunner::SnapshotOfNow() const {
  return {.state = memory_.state(),
          .step = marks_.completed,
          .update = best_.step_in_arena().value_or(marks_.completed),
          .trainer_state = history_.TrainerState(marks_, evaluations_.best()),
          .samples = evaluations_.sample_lines()};
}

void JobRunner::Save(Done done) {
  saver_.Save(SnapshotOfNow(), {history_.tokens_trained(), updates_.State()},
              [this, done = std::move(done)](const absl::Status& status) {
                if (status.ok()) {
                  std::optional<int64_t> best;
                  if (spec().load_best_model_at_end &&
                      evaluations_.best().has_value()) {
                    best = evaluations_.best()->step;
                  }
                  saver_.RemoveOld(best);
                }
                done(status);
              });
}

// A full disk holds the job; a checkpoint that failed for another reason costs
// what a crash would lose, not the job.
void JobRunner::SaveAndGoOn() {
  Save([this, step = marks_.completed](const absl::Status& status) {
    if (!status.ok() && spec().load_best_model_at_end) {
      evaluations_.DropBestOf(step);
    }
    HoldForNextSave();
    if (!phase_.ending() && book_.idle()) BeginNext();
    CarryOut();
  });
}

// --- the end ---

void JobRunner::BeginFinal() {
  phase_.StartFinal();
  events_.OnFinalizing();
  best_.Load();
}

void JobRunner::OnBestLoaded(const absl::Status& status) {
  if (status.ok()) return Export(options_.output_path);
  if (MayPass(status)) return Stop(OutcomeOf(status));
  Fail(absl::IsResourceExhausted(status) ? JobReason::kHostMemory
                                         : JobReason::kCheckpointCorrupt,
       absl::StrCat("load_best_model_at_end: ", std::string(status.message())));
}

void JobRunner::Export(const std::string& path) {
  const absl::Status planned = saver_.WriteOutput(
      path, SnapshotOfNow(), history_.entries(),
      [this, path](const absl::Status& status) { OnExported(path, status); });
  if (!planned.ok()) {
    Fail(JobReason::kInternal, std::string(planned.message()));
  }
}

// What is there already and is not this job's stays; the result then has the
// job's uid in its name.
void JobRunner::OnExported(const std::string& path,
                           const absl::Status& status) {
  if (phase_.ending()) return;  // AfterQuiet finishes
  const bool elsewhere = path != options_.output_path;
  if (absl::IsAlreadyExists(status) && !elsewhere) {
    events_.OnNote(
        absl::StrCat(status.message(), " and is not this job's: it stays"));
    Export(absl::StrCat(path, "-", options_.uid));
    return;
  }
  if (!status.ok()) {  // what else could not be written is held
    Stop(OutcomeOf(status));
    return;
  }
  phase_.Stop({JobState::kSucceeded, JobReason::kNone, FinalMessage(), path});
  Finish();
}

std::string JobRunner::FinalMessage() const {
  std::string text;
  const std::optional<Evaluation>& best = evaluations_.best();
  if (marks_.completed < marks_.total) {
    text = absl::StrCat("stopped after step ", marks_.completed, " of ",
                        marks_.total);
    absl::StrAppend(
        &text, evaluations_.out_of_patience()
                   ? absl::StrCat(": no better eval_loss in ",
                                  evaluations_.since_best(), " evaluations")
                   : " on request");
  }
  if (spec().load_best_model_at_end && best.has_value()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ",
                    "the output is the model of step ", best->step,
                    ", eval_loss ", best->loss);
  }
  if (!best_.lost().empty()) absl::StrAppend(&text, "; ", best_.lost());
  return text;
}

// --- what can't be written ---

// Whether the job keeps its memory and waits.  A checkpoint that fails for
// another reason than space is tried again with the next one: the one before
// it is as safe as ever.  A result and the save of a pause have no other copy.
bool JobRunner::Holds(const DirectoryPlan& plan,
                      const absl::Status& status) const {
  // A name that somebody else has is not waited for.
  if (draining_ || absl::IsAlreadyExists(status)) return false;
  const bool checkpoint = plan.manifest.has_value();
  if (phase_.ending()) return checkpoint && phase_.pausing();
  return absl::IsResourceExhausted(status) || !checkpoint;
}

void JobRunner::OnHeld(const DirectoryPlan& plan, const absl::Status& status,
                       uint64_t need_bytes) {
  if (book_.open()) {
    // What is begun stays begun, for its gradients may be there already; slots
    // that wait for its weights would be in other jobs' way.
    book_.HoldSlots(StartedSlots::kWithdrawn);
    CarryOut();
  }
  const JobState state = phase_.ending()       ? JobState::kPausing
                         : phase_.finalizing() ? JobState::kFinalizing
                                               : JobState::kRunning;
  events_.OnHeld(
      {.state = state,
       .reason = StorageReason(status),
       .why = std::string(status.message()),
       .need_bytes = need_bytes,
       .directory =
           std::filesystem::path(plan.final_path).parent_path().string(),
       .saved_step = std::max<int64_t>(saver_.saved_step(), 0)});
}

void JobRunner::OnUnheld() {
  last_step_ns_ = MonotonicNs();  // no step took that long
  if (book_.open() && !resting_) book_.ReleaseSlots();
}

void JobRunner::OnResumed() {
  if (!book_.open()) return;
  if (phase_.stepping() && !resting_) {
    FailWithoutDevices("all of them were lost while the job waited");
  }
  CarryOut();
}

// The job stops, and nobody waits for what it is held with any more.
void JobRunner::GiveUpHeld() {
  if (!held()) return;
  writer_.GiveUp();
  AfterQuiet();
}

}  // namespace roundhouse
