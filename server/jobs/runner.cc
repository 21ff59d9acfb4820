#include "server/jobs/runner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/jobs/plan_costs.h"
#include "server/jobs/spec_error.h"

namespace roundhouse {
namespace {

DType ComputeDtype(SpecDtype dtype) {
  return dtype == SpecDtype::kBf16 ? DType::kBF16 : DType::kF32;
}

LrScheduleType ScheduleType(LrSchedulerType type) {
  switch (type) {
    case LrSchedulerType::kLinear:
      return LrScheduleType::kLinear;
    case LrSchedulerType::kCosine:
      return LrScheduleType::kCosine;
    case LrSchedulerType::kConstant:
    case LrSchedulerType::kConstantWithWarmup:
      return LrScheduleType::kConstant;
  }
  return LrScheduleType::kConstant;
}

LrSchedule MakeSchedule(const JobSpec& spec, int64_t total_steps) {
  LrSchedule schedule;
  schedule.type = ScheduleType(spec.lr_scheduler_type);
  schedule.peak = spec.learning_rate;
  schedule.total_steps = total_steps;
  // transformers: ceil(ratio x steps); "constant" has no warm-up.
  schedule.warmup_steps = spec.warmup_steps;
  if (spec.warmup_ratio > 0) {
    schedule.warmup_steps = static_cast<int64_t>(
        std::ceil(static_cast<double>(total_steps) * spec.warmup_ratio));
  }
  if (spec.lr_scheduler_type == LrSchedulerType::kConstant) {
    schedule.warmup_steps = 0;
  }
  return schedule;
}

TrainingStateOptions StateOptions(uint64_t job, const ResolvedSpec& spec,
                                  const ModelConfig& model) {
  TrainingStateOptions options;
  options.job = job;
  options.model = model;
  options.dtype = ComputeDtype(spec.spec().dtype);
  options.seed = static_cast<uint64_t>(spec.spec().seed);
  options.head_token_chunk = spec.spec().head_token_chunk;
  return options;
}

int64_t RoundMicroBatches(const ResolvedSpec& spec) {
  const int64_t micro_batches =
      (spec.spec().batch_size + spec.micro_batch_size() - 1) /
      spec.micro_batch_size();
  return std::min(micro_batches, spec.micro_batches_per_round());
}

RoundBuffersOptions BufferOptions(const ResolvedSpec& spec,
                                  const ModelConfig& model, const Plan& plan,
                                  int64_t max_sequence_tokens) {
  RoundBuffersOptions options;
  options.plan = plan;
  options.micro_batches = static_cast<int>(RoundMicroBatches(spec));
  options.rows = spec.micro_batch_size();
  options.row_tokens = max_sequence_tokens;
  options.hidden_size = model.hidden_size;
  options.dtype = ComputeDtype(spec.spec().dtype);
  return options;
}

absl::StatusOr<Plan> ExplicitToPlan(const ExplicitPlan& text, int layers) {
  Plan plan;
  plan.fused = true;
  for (const StageRange& s : text.forward) {
    plan.forward.push_back({s.first, s.last});
  }
  for (const StageRange& s : text.backward) {
    plan.backward.push_back({s.first, s.last});
  }
  absl::Status status = CheckPlan(plan, layers);
  if (status.ok() && plan.backward.empty()) {
    status = absl::InvalidArgumentError("plan.backward: has no stage");
  }
  if (!status.ok()) {
    return FieldError("INVALID_VALUE", "plan", std::string(status.message()));
  }
  return plan;
}

}  // namespace

absl::StatusOr<Plan> JobRunner::InitialPlan(const ResolvedSpec& spec,
                                            const ModelConfig& model,
                                            int device_count,
                                            uint64_t device_memory_bytes) {
  const int layers = static_cast<int>(model.layer_count) + 1;
  if (spec.spec().plan.has_value()) {
    return ExplicitToPlan(*spec.spec().plan, layers);
  }
  const DType dtype = ComputeDtype(spec.spec().dtype);
  return PlanFromCosts(CostModel(LayerBytes(model, dtype)), model, dtype,
                       device_count, device_memory_bytes);
}

HostNeed JobRunner::NeedOf(const ResolvedSpec& spec, const ModelConfig& model,
                           const Plan& plan, int64_t max_sequence_tokens) {
  HostNeed need;
  need.state_bytes = TrainingStateBytes(StateOptions(0, spec, model));
  need.buffer_bytes =
      RoundBuffersBytes(BufferOptions(spec, model, plan, max_sequence_tokens));
  int64_t parameters = 0;
  for (const UnitSpec& unit : ModelUnits(model)) {
    parameters += static_cast<int64_t>(unit.parameters.size());
  }
  // Four tensors of each parameter, with their names in the files' headers.
  need.table_bytes = static_cast<uint64_t>(parameters) * 4 * 512 + (1 << 16);
  return need;
}

JobRunner::JobRunner(EventLoop& loop, HostArena& arena, WorkerPool& pool,
                     RunnerOptions options, Listener* listener)
    : loop_(loop),
      arena_(arena),
      pool_(pool),
      options_(std::move(options)),
      listener_(listener),
      order_(options_.train->counts().sequences,
             options_.spec.spec().batch_size,
             static_cast<uint64_t>(options_.spec.spec().seed)) {
  const JobSpec& job = options_.spec.spec();
  total_steps_ = job.max_steps;
  if (total_steps_ == 0) {
    total_steps_ = static_cast<int64_t>(std::ceil(
        job.num_train_epochs * static_cast<double>(order_.steps_per_epoch())));
  }
  total_steps_ = std::max<int64_t>(total_steps_, 1);
  schedule_ = MakeSchedule(job, total_steps_);
}

JobRunner::~JobRunner() {
  if (background_.joinable()) background_.join();
}

absl::Status JobRunner::Allocate() {
  const ModelConfig& model = options_.model.config;
  const DType dtype = ComputeDtype(spec().dtype);
  ASSIGN_OR_RETURN(plan_,
                   InitialPlan(options_.spec, model, pool_.device_count(),
                               options_.device_memory_bytes));
  costs_ = std::make_unique<CostModel>(LayerBytes(model, dtype));
  ASSIGN_OR_RETURN(
      state_, TrainingState::Create(
                  arena_, StateOptions(options_.job, options_.spec, model)));
  int64_t longest = options_.train->counts().max_sequence_tokens;
  if (options_.validation != nullptr) {
    longest =
        std::max(longest, options_.validation->counts().max_sequence_tokens);
  }
  ASSIGN_OR_RETURN(
      buffers_, RoundBuffers::Create(arena_, BufferOptions(options_.spec, model,
                                                           plan_, longest)));
  return absl::OkStatus();
}

void JobRunner::Start() {
  const absl::Status status = Allocate();
  if (!status.ok()) {
    outcome_ = JobOutcome{JobState::kFailed,
                          status.code() == absl::StatusCode::kResourceExhausted
                              ? JobReason::kHostMemory
                              : JobReason::kInternal,
                          std::string(status.message()), ""};
    loop_.After(absl::ZeroDuration(), [this] { Finish(); });
    return;
  }
  listener_->OnNote(absl::StrCat("plan: ", ToString(plan_), "; host memory ",
                                 state_->host_bytes() + buffers_->host_bytes(),
                                 " bytes"));
  for (int i = 0; i < pool_.device_count() + 1; ++i) {
    ConfigureWorker(static_cast<WorkerId>(i));
  }
  FindStart();
}

void JobRunner::ConfigureWorker(WorkerId worker) {
  if (worker == pool_.FilesWorker() || !pool_.up(worker)) return;
  pool_.Send(worker, wire::ConfigureJob{options_.job, state_->layout_offset()});
}

// --- where to start from ---

JobRunner::StartPoint JobRunner::BestCheckpoint(
    std::vector<std::string> candidates) {
  StartPoint start;
  for (const std::string& path : candidates) {
    auto manifest = ReadCheckpoint(path, true);
    if (manifest.ok()) {
      start.path = path;
      start.manifest = *std::move(manifest);
      return start;
    }
    start.notes.push_back(absl::StrCat(
        "checkpoint ", path,
        " is not used: ", std::string(manifest.status().message())));
    const absl::Status moved = QuarantineCheckpoint(path);
    if (!moved.ok()) start.notes.push_back(std::string(moved.message()));
  }
  return start;
}

// The job's own checkpoints, newest first; then the one its spec names.
void JobRunner::FindStart() {
  std::vector<std::string> candidates;
  const std::vector<int64_t> steps = ListCheckpointSteps(options_.directory);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    candidates.push_back(CheckpointPath(options_.directory, *step));
  }
  const std::string named = spec().resume_from_checkpoint;
  background_ = std::thread([this, candidates, named] {
    StartPoint start = BestCheckpoint(candidates);
    absl::Status status;
    if (start.path.empty() && !named.empty()) {
      auto manifest = ReadCheckpoint(named, true);
      if (manifest.ok()) {
        start.path = named;
        start.manifest = *std::move(manifest);
      } else {
        status = manifest.status();
      }
    }
    // Refused only when the daemon is stopping.
    loop_
        .Post([this, start, status] {
          background_.join();
          for (const std::string& note : start.notes) listener_->OnNote(note);
          if (!status.ok()) {
            Fail(JobReason::kCheckpointCorrupt, std::string(status.message()));
          } else if (outcome_.has_value()) {
            Finish();
          } else {
            Load(start);
          }
        })
        .IgnoreError();
  });
}

void JobRunner::Load(const StartPoint& start) {
  std::vector<FilePart> parts;
  wire::FileOpKind kind = wire::FileOpKind::kLoad;
  if (!start.path.empty()) {
    auto resumed = ResumeParts(start.path, *state_);
    if (!resumed.ok()) {
      Fail(JobReason::kCheckpointCorrupt,
           std::string(resumed.status().message()));
      return;
    }
    parts = *std::move(resumed);
    completed_step_ = begun_step_ = saved_step_ = start.manifest.step;
    tokens_trained_ = static_cast<int64_t>(start.manifest.tokens_trained);
    RestoreHistory(start.path);
    listener_->OnNote(absl::StrCat("going on from ", start.path));
  } else if (spec().model_init == ModelInit::kRandom) {
    kind = wire::FileOpKind::kInit;
    parts = InitParts(*state_);
  } else {
    parts = LoadParts(options_.model, *state_);
  }
  auto table = FileTable::Create(arena_, kind, parts);
  if (!table.ok()) {
    Fail(JobReason::kHostMemory, std::string(table.status().message()));
    return;
  }
  RunFileOp(*std::move(table),
            [this](absl::Status status) { OnLoaded(status); });
}

void JobRunner::RestoreHistory(const std::string& checkpoint) {
  std::ifstream file(checkpoint + "/trainer_state.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto json = nlohmann::json::parse(text.str(), nullptr, false);
  if (!json.is_object() || !json.contains("log_history")) return;
  for (const auto& entry : json["log_history"]) {
    // Later steps were seen but not kept: they come again.
    if (!entry.is_object() || !entry.contains("step") ||
        !entry["step"].is_number_integer() || entry["step"] > completed_step_) {
      continue;
    }
    history_.push_back(entry.dump());
    evaluated_before_ |= entry.contains("eval_loss");
  }
}

void JobRunner::OnLoaded(const absl::Status& status) {
  if (outcome_.has_value()) {
    Finish();
    return;
  }
  if (!status.ok()) {
    Fail(JobReason::kInvalidModel, std::string(status.message()));
    return;
  }
  version_ = next_pass_++;
  for (size_t unit = 0; unit < state_->units().size(); ++unit) {
    const uint64_t offset =
        state_->layout(static_cast<int>(unit)).version_word_offset;
    wire::Raise(arena_.arena().WordAt(offset), version_,
                arena_.arena().doorbells());
  }
  StartDispatcher();
  if (phase_ == Phase::kFinished) return;  // no device is left
  listener_->OnRunning(completed_step_, total_steps_);
  BeginNext();
}

void JobRunner::StartDispatcher() {
  const ModelConfig& model = options_.model.config;
  const JobShape shape = {static_cast<int>(model.layer_count) + 1,
                          static_cast<int>(state_->units().size()),
                          model.tie_word_embeddings};
  dispatcher_ = std::make_unique<Dispatcher>(shape, DispatcherOptions{});
  phase_ = Phase::kStepping;
  if (pool_.up(pool_.HostWorker())) dispatcher_->HostUp();
  for (int i = 0; i < pool_.device_count(); ++i) {
    const DeviceId device = static_cast<DeviceId>(i);
    if (pool_.up(pool_.DeviceWorker(device))) dispatcher_->DeviceUp(device);
  }
  FailWithoutDevices("all of them were lost before the job started");
}

// --- the workers' comings and goings ---

void JobRunner::OnWorkerUp(WorkerId worker) {
  if (phase_ == Phase::kFinished || state_ == nullptr) return;
  if (worker == pool_.FilesWorker()) {
    if (file_op_.has_value()) SendFileOp();
    return;
  }
  ConfigureWorker(worker);
  if (dispatcher_ == nullptr) return;
  if (worker == pool_.HostWorker()) {
    dispatcher_->HostUp();
  } else {
    dispatcher_->DeviceUp(static_cast<DeviceId>(Number(worker)));
  }
  CarryOut();
}

void JobRunner::OnWorkerDown(WorkerId worker) {
  if (dispatcher_ == nullptr || phase_ == Phase::kFinished) return;
  if (worker == pool_.FilesWorker()) return;
  if (worker == pool_.HostWorker()) {
    dispatcher_->HostDown();
  } else {
    dispatcher_->DeviceDown(static_cast<DeviceId>(Number(worker)));
  }
  CarryOut();
}

void JobRunner::FailWithoutDevices(const std::string& why) {
  for (int i = 0; i < pool_.device_count(); ++i) {
    const WorkerId worker = pool_.DeviceWorker(static_cast<DeviceId>(i));
    if (!pool_.info(worker).lost) return;
  }
  Fail(JobReason::kNoHealthyDevice, absl::StrCat("no device is left: ", why));
}

void JobRunner::OnDeviceLost(DeviceId device, const std::string& why) {
  if (dispatcher_ == nullptr || phase_ == Phase::kFinished) return;
  listener_->OnNote(absl::StrCat("device ", Number(device), " is lost"));
  dispatcher_->DeviceLost(device);
  FailWithoutDevices(why);
  CarryOut();
}

// --- stopping ---

void JobRunner::Pause() { Stop({JobState::kPaused, JobReason::kNone, "", ""}); }

void JobRunner::Cancel() {
  Stop({JobState::kCancelled, JobReason::kNone, "", ""});
}

void JobRunner::Fail(JobReason reason, const std::string& message) {
  Stop({JobState::kFailed, reason, message, ""});
}

void JobRunner::FailWith(const absl::Status& status) {
  const bool full = status.code() == absl::StatusCode::kResourceExhausted;
  Fail(full ? JobReason::kStorageFull : JobReason::kInternal,
       std::string(status.message()));
}

void JobRunner::Stop(JobOutcome outcome) {
  if (phase_ == Phase::kFinished) return;
  // A failure stays a failure; a cancellation overrules a pause.
  if (!outcome_.has_value() || outcome_->state == JobState::kPaused) {
    outcome_ = std::move(outcome);
  }
  if (phase_ == Phase::kLoading) {
    if (!background_.joinable() && !file_op_.has_value()) Finish();
    return;
  }
  if (abandoned_ || quiet_) return;
  const bool finalizing = phase_ == Phase::kFinalizing;
  phase_ = Phase::kStopping;
  if (finalizing || dispatcher_->Idle()) {
    quiet_ = true;
    AfterQuiet();
    return;
  }
  // A paused job keeps its weights: the step that is being updated ends first,
  // StepDone follows.
  const bool keep_weights = outcome_->state == JobState::kPaused;
  if (keep_weights && dispatcher_->Updating()) return;
  abandoned_ = true;
  dispatcher_->Abandon();
  CarryOut();
}

void JobRunner::AfterQuiet() {
  // Comes again when what is still going on has ended.
  if (phase_ != Phase::kStopping || !quiet_ || saving_ ||
      file_op_.has_value()) {
    return;
  }
  const bool save = outcome_->state == JobState::kPaused &&
                    completed_step_ > 0 && completed_step_ != saved_step_;
  if (!save) {
    Finish();
    return;
  }
  Save([this](absl::Status status) {
    if (!status.ok()) {
      outcome_ =
          JobOutcome{JobState::kFailed,
                     status.code() == absl::StatusCode::kResourceExhausted
                         ? JobReason::kStorageFull
                         : JobReason::kInternal,
                     std::string(status.message()), ""};
    }
    Finish();
  });
}

void JobRunner::Finish() {
  if (phase_ == Phase::kFinished) return;
  phase_ = Phase::kFinished;
  if (background_.joinable()) background_.join();
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
  file_op_.reset();
  dispatcher_.reset();
  buffers_.reset();
  state_.reset();
  listener_->OnFinished(*outcome_);
}

}  // namespace roundhouse
