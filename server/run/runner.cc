#include "server/run/runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/run/start_weights.h"
#include "server/sample/sampling_state.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
JobRunner::JobRunner(const Surroundings& around, RunnerOptions options,
                     JobEvents& events, StepTelemetry& telemetry)
    : around_(around),
      options_(std::move(options)),
      events_(events),
      marks_{.total = TotalSteps(spec(), options_.train->counts().rows)},
      memory_(around.arena, options_),
      maker_(options_.spec, *options_.train, options_.validation),
      updates_(spec(), marks_.total),
      history_(spec(), maker_.steps_per_epoch(), options_.directory),
      operation_(*options_.files_line,
                 {options_.job, static_cast<uint64_t>(spec().seed)},
                 [this] {
                   AfterQuiet();
                   if (book_.open()) CarryOut();
                 }),
      loader_(
          {memory_, operation_, options_.bases, options_.model, background_}),
      writer_({around.arena, background_, operation_}, *this),
      saver_({background_, writer_, events_}, options_),
      evaluations_(
          {around.loop, around.arena, around.pool, marks_, history_, events_},
          options_, EvaluationCalls()),
      best_({background_, loader_, evaluations_, history_, marks_, events_},
            options_, BestModelCalls()),
      book_({around.pool, around.dispatch, memory_, telemetry, *this}, id(),
            options_.owner, options_.priority),
      background_(around.loop, Background::Thread::kOwn,
                  [this] { AfterQuiet(); }) {}

EvaluationCycle::Calls JobRunner::EvaluationCalls() {
  return {.validate = [this] { BeginEvaluation(); },
          .units =
              [this] {
                // The dispatcher is drained: the arena holds the weights of the
                // completed step until the next one begins.
                return SampleUnits(
                    options_.model.config, memory_.state().options().adapter,
                    [this](int unit) {
                      return memory_.state().Weights(unit, marks_.completed);
                    },
                    [this](int unit) {
                      return memory_.state().Version(unit, maker_.version());
                    });
              },
          .ending = [this] { return phase_.ending(); },
          .resting = [this] { return resting_; },
          .over = [this](EvaluationCycle::Loss loss) { EndEvaluation(loss); },
          .sampled =
              [this] {
                GoOn();
                CarryOut();
              },
          .computed =
              [this](int64_t ns) {
                around_.dispatch.dispatcher().NoteUse(
                    {.owner = options_.owner, .job = id(), .device_ns = ns});
              }};
}

BestModel::Calls JobRunner::BestModelCalls() {
  return {.ending = [this] { return phase_.ending(); },
          .parts =
              [this](const std::string& path, int64_t step) {
                return CheckpointParts(options_, memory_.state(), path, step);
              },
          .over = [this](const absl::Status& status) { OnBestLoaded(status); }};
}

void JobRunner::Start() {
  const absl::Status status = memory_.Allocate(around_.pool.device_count());
  if (!status.ok()) {
    const JobReason reason =
        absl::IsResourceExhausted(status) ? JobReason::kHostMemory
        : absl::IsNotFound(status)        ? JobReason::kInvalidModel
                                          : JobReason::kInternal;
    phase_.Stop({JobState::kFailed, reason, std::string(status.message()), ""});
    around_.loop.After(absl::ZeroDuration(), [this] { Finish(); });
    return;
  }
  adviser_ = std::make_unique<PlanAdviser>(
      PlanAdviser::Surroundings{around_.pool, dispatcher(), background_,
                                memory_},
      options_,
      PlanAdviser::Calls{
          .wanted = [this] { return phase_.stepping(); },
          .note = [this](const std::string& text) { events_.OnNote(text); }});
  for (const std::string& note : memory_.Notes()) events_.OnNote(note);
  memory_.WaitForPages([this](const absl::Status& ready) { OnMemory(ready); });
}

void JobRunner::OnMemory(const absl::Status& ready) {
  if (!ready.ok()) {
    return Fail(JobReason::kHostMemory, std::string(ready.message()));
  }
  for (int i = 0; i < around_.pool.device_count() + 1; ++i) {
    book_.Configure(static_cast<WorkerId>(i));
  }
  FindStart();
}

void JobRunner::SetPriority(Priority priority) { book_.SetPriority(priority); }

// --- the workers' comings and goings ---

void JobRunner::OnWorkerUp(WorkerId worker) {
  if (phase_.finished() || !memory_.allocated()) return;
  book_.Configure(worker);
  if (book_.open()) evaluations_.OnWorkerUp(worker);
}

void JobRunner::FailWithoutDevices(const std::string& why) {
  const WorkerPool& pool = around_.pool;
  bool lent = false;
  for (int i = 0; i < pool.device_count(); ++i) {
    const auto device = static_cast<DeviceId>(i);
    if (!pool.gone(device)) return;
    lent = lent || !pool.info(pool.DeviceWorker(device)).lost;
  }
  if (lent) {
    return events_.OnNote(
        "no device is left; the job waits for one that is lent or fenced");
  }
  Fail(JobReason::kNoHealthyDevice, absl::StrCat("no device is left: ", why));
}

void JobRunner::OnDeviceLost(DeviceId device, const std::string& why) {
  if (!book_.open() || phase_.finished()) return;
  const WorkerPool& pool = around_.pool;
  const bool lost = pool.info(pool.DeviceWorker(device)).lost;
  events_.OnNote(lost ? absl::StrCat("device ", Number(device), " is lost")
                      : why);
  book_.OnDeviceLost(device);
  // What only writes needs no device; what waits finds out when it goes on.
  const bool needs_none =
      writer_.held() || resting_ || phase_.finalizing() || phase_.quiet();
  if (!needs_none) FailWithoutDevices(why);
  evaluations_.OnDeviceLost();
}

// --- stopping ---

void JobRunner::Pause() { Stop({JobState::kPaused, JobReason::kNone, "", ""}); }

void JobRunner::Rest() {
  resting_ = true;
  book_.HoldSlots(StartedSlots::kEnd);
  CarryOut();
}

void JobRunner::EndRest() {
  resting_ = false;
  last_step_ns_ = MonotonicNs();  // no step took that long
  if (writer_.held()) return;     // what can't be written holds it yet
  book_.ReleaseSlots();
  FailWithoutDevices("all of them were lost while the job was paused");
  if (!phase_.stepping()) return;
  if (!book_.idle()) BeginSteps();
  GoOn();
  CarryOut();
}

void JobRunner::Cancel() {
  Stop({JobState::kCancelled, JobReason::kNone, "", ""});
}

void JobRunner::Fail(JobReason reason, const std::string& message) {
  Stop({JobState::kFailed, reason, message, ""});
}

void JobRunner::Drain() {
  draining_ = true;
  if (held()) {
    Stop({JobState::kPaused, JobReason::kStorageFull, "", ""});
  } else {
    Pause();
  }
}

void JobRunner::Stop(JobOutcome outcome) {
  if (phase_.finished()) return;
  const bool finalizing = phase_.finalizing();
  phase_.Stop(std::move(outcome));
  const bool rested = std::exchange(resting_, false);
  GiveUpHeld();
  if (phase_.finished()) return;
  if (phase_.loading()) {
    if (!Busy()) Finish();
    return;
  }
  if (!phase_.letting_end()) return;
  if (finalizing || book_.idle()) {
    phase_.BeQuiet();
    evaluations_.StopSampling();
    AfterQuiet();
    return;
  }
  // A paused job keeps its weights: the step that is being updated ends first,
  // StepDone follows.
  const bool keep_weights = phase_.outcome().state == JobState::kPaused;
  if (keep_weights && dispatcher().Updating(id())) {
    if (!rested) return;
    book_.ReleaseSlots();  // some of them may be needed to end it
    CarryOut();
    return;
  }
  phase_.Abandon();
  dispatcher().Abandon(id());
  CarryOut();
}

void JobRunner::AfterQuiet() {
  // Comes again when what is still going on has ended.
  if (!phase_.quiet() || saver_.saving() || Busy() || evaluations_.sampling()) {
    return;
  }
  const bool save = phase_.pausing() && marks_.completed > 0 &&
                    marks_.completed != saver_.saved_step() &&
                    !best_.step_in_arena().has_value();
  if (!save) {
    Finish();
    return;
  }
  Save([this](const absl::Status& status) {
    // It may have been cancelled meanwhile.
    const bool pausing = phase_.outcome().state == JobState::kPaused;
    if (!status.ok() && !absl::IsCancelled(status) && pausing) {
      phase_.SetOutcome(OutcomeOf(status));
    }
    AfterQuiet();
  });
}

void JobRunner::Finish() {
  if (phase_.finished()) return;
  phase_.Finish();
  book_.Publish();
  if (phase_.outcome().reason == JobReason::kNonFiniteLoss) {
    // Only now: one may have been on its way when the job failed.
    const int64_t saved = saver_.saved_step();
    phase_.AddToMessage(
        absl::StrCat("; last good checkpoint: ",
                     saved > 0 ? CheckpointPath(options_.directory, saved)
                               : std::string("none")));
  }
  book_.Close();
  operation_.Forget();
  if (adviser_ != nullptr) adviser_->Stop();
  loader_.Stop();
  memory_.Release();
  if (options_.bases != nullptr) options_.bases->DropEmpty();
  events_.OnFinished(phase_.outcome());
}

// What could not be read or written is nobody's mistake, and what was before is
// there.
JobOutcome JobRunner::OutcomeOf(const absl::Status& status) const {
  const JobReason reason = StorageReason(status);
  const std::string next =
      !phase_.loading()
          ? absl::StrCat("; resumed, it goes on after step ",
                         std::max<int64_t>(saver_.saved_step(), 0))
      : reason == JobReason::kStorageFull ? std::string(kGoesOnWithRoom)
                                          : "; resumed, it is tried again";
  return {JobState::kPaused, reason,
          absl::StrCat(std::string(status.message()), next), ""};
}

}  // namespace roundhouse
