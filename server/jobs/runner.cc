#include "server/jobs/runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/log.h"
#include "base/status.h"
#include "server/jobs/plan_costs.h"

namespace roundhouse {
JobRunner::JobRunner(EventLoop& loop, HostArena& arena, WorkerPool& pool,
                     DispatchLoop& dispatch, RunnerOptions options,
                     Listener* listener)
    : loop_(loop),
      arena_(arena),
      pool_(pool),
      dispatch_(dispatch),
      options_(std::move(options)),
      listener_(listener),
      order_(options_.train->counts().rows, options_.spec.spec().batch_size,
             static_cast<uint64_t>(options_.spec.spec().seed)),
      total_steps_(
          TotalSteps(options_.spec.spec(), options_.train->counts().rows)),
      updates_(options_.spec.spec(), total_steps_),
      evaluations_({options_.validation != nullptr,
                    options_.spec.spec().eval_steps,
                    options_.spec.spec().early_stopping_patience}),
      samples_(loop, arena, pool,
               {.job = options_.job,
                .model = options_.model.config,
                .prompts = options_.spec.spec().eval_prompts,
                .eval_steps = options_.spec.spec().eval_steps,
                .text = options_.text}),
      wide_sums_(pool, dispatch) {}

JobRunner::~JobRunner() {
  if (dispatching_) dispatch_.Leave(id());
  if (phase_ != Phase::kFinished) pool_.Forget(this);
  if (file_op_.has_value()) options_.files_line->Forget(file_op_->ticket);
  arena_.pages().Forget(memory_wait_);
}

HostUse JobRunner::host_use() const {
  HostUse use;
  if (state_ == nullptr || buffers_ == nullptr) return use;
  use.activation_bytes = buffers_->host_bytes();
  for (size_t i = 0; i < state_->units().size(); ++i) {
    const int unit = static_cast<int>(i);
    const int copies =
        state_->trainable(unit) && state_->options().stale ? 2 : 1;
    use.weight_bytes += copies * state_->Weights(unit, 0).bytes;
    const wire::UnitLayout& layout = state_->layout(unit);
    if (!state_->trainable(unit)) continue;
    const uint64_t fp32_bytes = layout.element_count * DTypeBytes(DType::kF32);
    use.optimizer_bytes += 3 * fp32_bytes;
    if (layout.grad_sum_offset != 0) use.gradient_bytes += fp32_bytes;
  }
  use.gradient_bytes += buffers_->contributions().host_bytes();
  return use;
}

void JobRunner::InBackground(std::function<absl::Status()> work, Done done) {
  ++background_count_;
  // Moved: a status that two threads held would be freed by either, which
  // ThreadSanitizer cannot follow into Abseil's library.
  const bool taken = background_.TryRun(
      [this, work = std::move(work), done = std::move(done)]() mutable {
        absl::Status status = work();
        // Refused only when the daemon is stopping.
        loop_
            .Post([this, status = std::move(status), done = std::move(done)] {
              --background_count_;
              done(status);
              AfterQuiet();
            })
            .IgnoreError();
      });
  ROUNDHOUSE_CHECK(taken) << "more background work than a job ever has";
}

absl::Status JobRunner::Allocate() {
  const absl::Status status = TryAllocate();
  if (!absl::IsResourceExhausted(status)) return status;
  // What bases of earlier jobs take, or where they lie, may be in the way: this
  // job's own among them.
  state_.reset();
  buffers_.reset();
  if (options_.bases == nullptr || !options_.bases->DropUnused()) return status;
  return TryAllocate();
}

absl::Status JobRunner::TryAllocate() {
  const ModelConfig& model = options_.model.config;
  const TrainedModel trained = TrainedOf(options_.spec, model);
  ASSIGN_OR_RETURN(plan_, InitialPlan(options_.spec, model,
                                      pool_.device_count(), options_.device));
  costs_ = std::make_unique<CostModel>(LayerBytes(trained));
  std::shared_ptr<BaseWeights> base;
  if (trained.adapter.present()) {
    ASSIGN_OR_RETURN(base_key_, BaseKey(options_.model, trained.dtype));
    ASSIGN_OR_RETURN(base,
                     options_.bases->Get(base_key_, model, trained.dtype));
  }
  ASSIGN_OR_RETURN(state_,
                   TrainingState::Create(
                       arena_, StateOptions(options_.job, options_.spec, model),
                       std::move(base)));
  int64_t longest = options_.train->counts().max_row_tokens;
  if (options_.validation != nullptr) {
    longest = std::max(longest, options_.validation->counts().max_row_tokens);
  }
  ASSIGN_OR_RETURN(
      buffers_, RoundBuffers::Create(
                    arena_, BufferOptions(options_.spec, model, plan_, longest,
                                          pool_.device_count())));
  const HostNeed need =
      NeedOf(options_.spec, model, plan_, longest, pool_.device_count());
  table_bytes_ = need.table_bytes;
  const uint64_t free_bytes = arena_.limit_bytes() - arena_.used_bytes();
  // Taken at loads and saves, when it must be there.
  if (free_bytes < table_bytes_ && options_.bases != nullptr) {
    options_.bases->DropUnused();
  }
  return absl::OkStatus();
}

void JobRunner::NoteResources() {
  const ModelConfig& model = options_.model.config;
  const AdapterConfig adapter = options_.spec.adapter();
  std::string memory =
      absl::StrCat("plan: ", ToString(plan_), "; host memory ",
                   ByteText(state_->host_bytes() + buffers_->host_bytes() +
                            buffers_->contributions().host_bytes()));
  if (adapter.present()) {
    absl::StrAppend(&memory, " and ", ByteText(state_->base()->host_bytes()),
                    " of the base model, which other jobs may share");
  }
  listener_->OnNote(memory);
  const int64_t trained = TrainableParameterCount(model, adapter);
  const int64_t all =
      adapter.present() ? trained + ParameterCount(model) : trained;
  listener_->OnNote(
      absl::StrCat("trainable parameters: ", trained, " of ", all));
}

void JobRunner::Start() {
  const absl::Status status = Allocate();
  if (!status.ok()) {
    outcome_ =
        JobOutcome{JobState::kFailed,
                   absl::IsResourceExhausted(status) ? JobReason::kHostMemory
                   : absl::IsNotFound(status)        ? JobReason::kInvalidModel
                                                     : JobReason::kInternal,
                   std::string(status.message()), ""};
    loop_.After(absl::ZeroDuration(), [this] { Finish(); });
    return;
  }
  NoteResources();
  memory_wait_ = arena_.pages().WhenReady(
      [this](const absl::Status& ready) { OnMemory(ready); });
}

void JobRunner::OnMemory(const absl::Status& ready) {
  if (!ready.ok()) {
    return Fail(JobReason::kHostMemory, std::string(ready.message()));
  }
  for (int i = 0; i < pool_.device_count() + 1; ++i) {
    ConfigureWorker(static_cast<WorkerId>(i));
  }
  FindStart();
}

void JobRunner::ConfigureWorker(WorkerId worker) {
  if (worker == pool_.FilesWorker() || !pool_.up(worker)) return;
  pool_.Send(worker, wire::ConfigureJob{options_.job, state_->layout_offset()},
             worker == pool_.HostWorker() ? this : nullptr);
}

// --- the workers' comings and goings ---

void JobRunner::OnWorkerUp(WorkerId worker) {
  if (phase_ == Phase::kFinished || state_ == nullptr) return;
  ConfigureWorker(worker);
  if (dispatching_) samples_.OnWorkerUp(worker);
}

void JobRunner::FailWithoutDevices(const std::string& why) {
  for (int i = 0; i < pool_.device_count(); ++i) {
    const WorkerId worker = pool_.DeviceWorker(static_cast<DeviceId>(i));
    if (!pool_.info(worker).lost) return;
  }
  Fail(JobReason::kNoHealthyDevice, absl::StrCat("no device is left: ", why));
}

void JobRunner::OnDeviceLost(DeviceId device, const std::string& why) {
  if (!dispatching_ || phase_ == Phase::kFinished) return;
  listener_->OnNote(absl::StrCat("device ", Number(device), " is lost"));
  down_since_ns_.erase(device);
  // What only writes needs no device; what waits finds out when it goes on.
  const bool writes = held_.has_value() || phase_ == Phase::kFinalizing ||
                      (phase_ == Phase::kStopping && quiet_);
  if (!writes) FailWithoutDevices(why);
  samples_.OnDeviceLost();
}

// --- stopping ---

void JobRunner::Pause() { Stop({JobState::kPaused, JobReason::kNone, "", ""}); }

void JobRunner::Cancel() {
  Stop({JobState::kCancelled, JobReason::kNone, "", ""});
}

void JobRunner::Fail(JobReason reason, const std::string& message) {
  Stop({JobState::kFailed, reason, message, ""});
}

void JobRunner::Stop(JobOutcome outcome) {
  if (phase_ == Phase::kFinished) return;
  // A failure stays a failure; a cancellation overrules a pause.
  if (!outcome_.has_value() || outcome_->state == JobState::kPaused) {
    outcome_ = std::move(outcome);
  }
  GiveUpHeld();
  if (phase_ == Phase::kFinished) return;
  if (phase_ == Phase::kLoading) {
    if (!Busy()) Finish();
    return;
  }
  if (abandoned_ || quiet_) return;
  const bool finalizing = phase_ == Phase::kFinalizing;
  phase_ = Phase::kStopping;
  if (finalizing || Idle()) {
    quiet_ = true;
    samples_.Stop();
    AfterQuiet();
    return;
  }
  // A paused job keeps its weights: the step that is being updated ends first,
  // StepDone follows.
  const bool keep_weights = outcome_->state == JobState::kPaused;
  if (keep_weights && dispatcher().Updating(id())) return;
  abandoned_ = true;
  dispatcher().Abandon(id());
  CarryOut();
}

void JobRunner::AfterQuiet() {
  // Comes again when what is still going on has ended.
  if (phase_ != Phase::kStopping || !quiet_ || saving_ || Busy() ||
      samples_.running()) {
    return;
  }
  const bool save = outcome_->state == JobState::kPaused &&
                    outcome_->reason == JobReason::kNone &&
                    completed_step_ > 0 && completed_step_ != saved_step_ &&
                    !best_in_arena_.has_value();
  if (!save) {
    Finish();
    return;
  }
  Save([this](absl::Status status) {
    // It may have been cancelled meanwhile.
    const bool pausing = outcome_->state == JobState::kPaused;
    if (!status.ok() && !absl::IsCancelled(status) && pausing) {
      outcome_ = OutcomeOf(status);
    }
    AfterQuiet();
  });
}

void JobRunner::Finish() {
  if (phase_ == Phase::kFinished) return;
  phase_ = Phase::kFinished;
  Publish();
  arena_.pages().Forget(memory_wait_);
  if (outcome_->reason == JobReason::kNonFiniteLoss) {
    // Only now: one may have been on its way when the job failed.
    absl::StrAppend(&outcome_->message, "; last good checkpoint: ",
                    saved_step_ > 0
                        ? CheckpointPath(options_.directory, saved_step_)
                        : std::string("none"));
  }
  for (int i = 0; i < pool_.device_count() + 1; ++i) {
    const WorkerId worker = static_cast<WorkerId>(i);
    if (pool_.up(worker)) pool_.Send(worker, wire::ReleaseJob{options_.job});
  }
  pool_.Forget(this);
  if (file_op_.has_value()) options_.files_line->Forget(file_op_->ticket);
  file_op_.reset();
  if (std::exchange(dispatching_, false)) dispatch_.Remove(id());
  buffers_.reset();
  found_buffers_.reset();
  if (state_ != nullptr && state_->base() != nullptr) {
    state_->base()->Leave(base_ticket_);
  }
  state_.reset();
  if (options_.bases != nullptr) options_.bases->DropEmpty();
  listener_->OnFinished(*outcome_);
}

}  // namespace roundhouse
