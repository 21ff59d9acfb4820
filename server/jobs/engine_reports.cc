// Engine: what the runner and the workers report, and who is told of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/version.h"
#include "nlohmann/json.hpp"
#include "server/jobs/engine.h"
#include "server/jobs/evaluations.h"

namespace roundhouse {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kMetricsAfterEnd = absl::Minutes(5);
constexpr int64_t kBubbleWindowNs = int64_t{10} * 1000000000;
constexpr double kSmoothing = 0.9;

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

SlotPassLabel LabelOf(SlotPass pass) {
  switch (pass) {
    case SlotPass::kForward:
      return SlotPassLabel::kForward;
    case SlotPass::kFused:
      return SlotPassLabel::kFused;
    case SlotPass::kBackward:
      return SlotPassLabel::kBackward;
    case SlotPass::kEvaluate:
      return SlotPassLabel::kEvaluate;
  }
  return SlotPassLabel::kForward;
}

}  // namespace

void Engine::OnRunning(const RunningReport& report) {
  const absl::Status kept =
      running_->files->KeepMetricsUpTo(report.step, report.evaluated_step);
  if (!kept.ok()) OnNote(std::string(kept.message()));
  const absl::Status samples = running_->files->SetSamples(report.samples);
  if (!samples.ok()) OnNote(std::string(samples.message()));
  running_->start_step = report.step;
  running_->progress.step = report.step;
  running_->progress.total_steps = report.total_steps;
  // Steps that a crash undid are done, and counted, again.
  running_->progress.tokens = report.tokens;
  const int64_t now = MonotonicNs();
  for (DeviceLedger& ledger : ledgers_) {
    ledger.SetBusy(true, now);
    running_->times_at_start.push_back(ledger.total());
  }
  store_.UpdateProgress(running_->id, running_->progress);
  SetState(running_->id, JobState::kRunning, JobReason::kNone, "");
}

void Engine::OnStep(const StepReport& report) {
  if (options_.samples != nullptr) {
    options_.samples->AddStep(report.step, MonotonicNs());
  }
  Running& run = *running_;
  JobProgress& progress = run.progress;
  progress.step = report.step;
  progress.epoch = report.epoch;
  progress.tokens += report.tokens;
  progress.loss = report.loss;
  progress.learning_rate = report.learning_rate;
  progress.grad_norm = report.grad_norm;
  run.seconds_per_step = run.seconds_per_step == 0
                             ? report.seconds
                             : kSmoothing * run.seconds_per_step +
                                   (1 - kSmoothing) * report.seconds;
  if (report.seconds > 0) {
    progress.tokens_per_second =
        static_cast<double>(report.tokens) / report.seconds;
  }
  progress.eta =
      absl::Now() +
      absl::Seconds(run.seconds_per_step *
                    static_cast<double>(progress.total_steps - report.step));
  AccountDeviceUse();
  store_.UpdateProgress(run.id, progress);
  run.files->Metric(nlohmann::json{
      {"step", report.step},
      {"loss", report.loss},
      {"learning_rate", report.learning_rate},
      {"grad_norm", *report.grad_norm},
      {"epoch", report.epoch},
      {"tokens", report.tokens},
      {"step_seconds",
       report.seconds}}.dump());
  run.files->Log(absl::StrCat("step ", report.step, "/", progress.total_steps,
                              " loss ", report.loss, " grad_norm ",
                              *report.grad_norm, " lr ", report.learning_rate));
  metrics_.SetJobLoss(run.id, report.loss);
  metrics_.AddJobSteps(run.id, 1);
  metrics_.AddJobTokens(run.id, report.tokens);
  metrics_.SetJobEta(run.id, *progress.eta);
  metrics_.ObserveStep(absl::Seconds(report.seconds));
}

void Engine::OnEvaluation(int64_t step, double loss) {
  const double perplexity = Perplexity(loss);
  running_->files->Metric(nlohmann::json{
      {"step", step}, {"eval_loss", loss}, {"eval_perplexity", perplexity}}
                              .dump());
  OnNote(absl::StrCat("validation after step ", step, ": loss ", loss,
                      ", perplexity ", perplexity));
}

void Engine::OnSamples(const EvaluationSamples::Found& found) {
  running_->files->AddSamples(found.lines);
  for (const EvaluationSample& sample : found.samples) {
    // On one line, whatever it says.
    const std::string text =
        nlohmann::json(sample.completion)
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    OnNote(absl::StrCat("after step ", sample.step, " eval_prompts[",
                        sample.prompt, "] is completed by ", text));
  }
}

void Engine::OnCheckpoint(const CheckpointReport& report) {
  metrics_.ObserveCheckpoint(absl::Seconds(report.seconds));
  CheckpointRecord checkpoint;
  checkpoint.step = report.step;
  checkpoint.path = report.path;
  checkpoint.size_bytes = static_cast<int64_t>(report.bytes);
  checkpoint.create_time = absl::Now();
  const absl::Status status = store_.AddCheckpoint(running_->id, checkpoint);
  OnNote(
      absl::StrCat("checkpoint of step ", report.step, ": ",
                   status.ok() ? report.path : std::string(status.message())));
}

void Engine::OnCheckpointFailed(int64_t step, const absl::Status& status) {
  metrics_.CountCheckpointFailure();
  OnNote(absl::StrCat("checkpoint of step ", step,
                      " failed: ", std::string(status.message())));
}

void Engine::OnNote(const std::string& text) { running_->files->Log(text); }

void Engine::OnWarning(const std::string& text) {
  OnNote("WARNING: " + text);
  const absl::Status status =
      store_.AddEvent(running_->id, "note", "WARNING: " + text);
  if (!status.ok()) RH_LOG(kError) << running_->id << ": " << status;
}

void Engine::WarnOfData(const JobRecord& job, const std::string& file,
                        const Dataset& data) {
  for (const std::string& warning : data.counts().warnings) {
    const std::string text = absl::StrCat("WARNING: ", file, ": ", warning);
    const auto files = JobFiles::Open(JobDirectory(job));
    if (files.ok()) (*files)->Log(text);
    const absl::Status status = store_.AddEvent(job.id, "note", text);
    if (!status.ok()) RH_LOG(kError) << job.id << ": " << status;
  }
}

void Engine::OnFinalizing() {
  AccountDeviceUse();
  store_.UpdateProgress(running_->id, running_->progress);
  SetState(running_->id, JobState::kFinalizing, JobReason::kNone, "");
}

void Engine::ObserveSlot(SlotPass pass, const wire::SlotDone& done) {
  const SlotPassLabel label = LabelOf(pass);
  const std::pair<SlotPhase, int64_t> phases[] = {
      {SlotPhase::kWait, done.wait_ns},
      {SlotPhase::kHostToDevice, done.h2d_ns},
      {SlotPhase::kCompute, done.compute_ns},
      {SlotPhase::kDeviceToHost, done.d2h_ns}};
  for (const auto& [phase, ns] : phases) {
    metrics_.ObserveSlot(label, phase, absl::Nanoseconds(ns));
  }
}

void Engine::OnSlot(DeviceId device, SlotPass pass,
                    const wire::SlotDone& done) {
  const int index = Number(device);
  ledgers_[index].AddSlot(done.ended_ns, done.compute_ns);
  memory_peak_bytes_[index] =
      std::max(memory_peak_bytes_[index], done.device_memory_peak_bytes);
  metrics_.CountSlot(index, SlotResult::kOk);
  ObserveSlot(pass, done);
  if (options_.samples != nullptr) options_.samples->AddSlot(index, done);
  for (int d = 0; d < wire::kDirections; ++d) {
    for (int p = 0; p < wire::kPurposes; ++p) {
      metrics_.AddTransfer(index, static_cast<TransferDirection>(d),
                           static_cast<TransferPurpose>(p),
                           static_cast<int64_t>(done.bytes[d][p]));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  DeviceInfo& info = devices_[index];
  ++info.slots;
  for (int p = 0; p < wire::kPurposes; ++p) {
    info.h2d_bytes += static_cast<int64_t>(done.bytes[0][p]);
    info.d2h_bytes += static_cast<int64_t>(done.bytes[1][p]);
  }
}

void Engine::OnSlotReplayed(DeviceId device) {
  metrics_.CountSlot(Number(device), SlotResult::kReplayed);
}

void Engine::OnSlotFailed(DeviceId device) {
  metrics_.CountSlot(Number(device), SlotResult::kFailed);
}

void Engine::OnUnitUpdated(double seconds) {
  metrics_.ObserveOptimizer(absl::Seconds(seconds));
}

void Engine::OnRecovered(DeviceId device, double seconds) {
  metrics_.ObserveRecovery(absl::Seconds(seconds));
  OnNote(absl::StrCat("device ", Number(device), " works again after ", seconds,
                      " s"));
}

void Engine::OnDispatchLatency(double seconds) {
  metrics_.ObserveDispatchLatency(absl::Seconds(seconds));
  if (options_.samples != nullptr) options_.samples->AddDispatch(seconds);
}

void Engine::OnFinished(const JobOutcome& outcome) {
  AccountDeviceUse();
  const int64_t now = MonotonicNs();
  for (DeviceLedger& ledger : ledgers_) ledger.SetBusy(false, now);
  Running run = std::move(*running_);
  running_.reset();
  store_.UpdateProgress(run.id, run.progress);
  JobState state = outcome.state;
  std::string message = outcome.message;
  const auto job = store_.Get(run.id);
  const bool asked_to_pause = job.ok() && job->state == JobState::kPausing;
  if (draining_ && state == JobState::kPaused && !asked_to_pause) {
    state = JobState::kRecovering;
    message =
        absl::StrCat("the daemon is stopping; goes on when it starts again",
                     message.empty() ? "" : "; ", message);
  }
  if (state == JobState::kSucceeded) {
    JobDetails details;
    details.output_path = outcome.output_path;
    const absl::Status status = store_.SetDetails(run.id, details);
    if (!status.ok()) RH_LOG(kError) << run.id << ": " << status;
  }
  run.files->Log(absl::StrCat(
      JobStateName(state), outcome.reason == JobReason::kNone ? "" : " ",
      JobReasonName(outcome.reason), message.empty() ? "" : ": ", message));
  SetState(run.id, state, outcome.reason, message);
  const std::string id = run.id;
  loop_.After(kMetricsAfterEnd, [this, id] { metrics_.DropJob(id); });
  // The runner is still on the stack.
  auto keep = std::make_shared<Running>(std::move(run));
  loop_.After(absl::ZeroDuration(), [this, keep] {
    keep->runner.reset();
    if (draining_ && drained_) std::exchange(drained_, nullptr)();
    StartNext();
  });
}

// --- workers ---

void Engine::OnWorkerUp(WorkerId worker) {
  if (Number(worker) < pool_.device_count()) {
    metrics_.SetDeviceUp(Number(worker), true);
  }
  if (running_.has_value()) running_->runner->OnWorkerUp(worker);
  if (worker == pool_.FilesWorker()) exporter_->OnWorkerUp();
  sampler_->OnWorkerUp(worker);
}

void Engine::OnMessage(WorkerId worker, const wire::Message& message) {
  const auto* op = std::get_if<wire::HostOpDone>(&message.body);
  if (op != nullptr && options_.samples != nullptr) {
    options_.samples->AddHostOp(*op);
  }
  const auto* sample = std::get_if<wire::SampleDone>(&message.body);
  if (sample != nullptr && Number(worker) < pool_.device_count()) {
    OnSampleDone(Number(worker), *sample);
  }
  if (running_.has_value()) running_->runner->OnMessage(worker, message);
  if (worker == pool_.FilesWorker()) exporter_->OnMessage(message);
  sampler_->OnMessage(worker, message);
}

void Engine::OnSampleDone(int device, const wire::SampleDone& done) {
  const auto bytes = static_cast<int64_t>(done.weight_bytes);
  metrics_.AddTransfer(
      device, static_cast<TransferDirection>(wire::Direction::kH2D),
      static_cast<TransferPurpose>(wire::Purpose::kWeights), bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_[device].h2d_bytes += bytes;
}

void Engine::OnWorkerDown(WorkerId worker, const std::string& why) {
  if (Number(worker) < pool_.device_count()) {
    metrics_.SetDeviceUp(Number(worker), false);
  }
  if (worker == pool_.FilesWorker()) exporter_->OnWorkerDown(why);
  sampler_->OnWorkerDown(worker);
  if (!running_.has_value()) return;
  OnNote(why);
  running_->runner->OnWorkerDown(worker);
}

void Engine::OnDeviceLost(DeviceId device, const std::string& why) {
  RH_LOG(kError) << "device " << Number(device) << " is lost: " << why;
  if (running_.has_value()) running_->runner->OnDeviceLost(device, why);
  sampler_->OnDeviceLost();
}

// --- telling ---

void Engine::AccountDeviceUse() {
  Running& run = *running_;
  if (run.times_at_start.empty()) return;
  run.progress.device_use.clear();
  for (size_t i = 0; i < ledgers_.size(); ++i) {
    const DeviceTimes& total = ledgers_[i].total();
    const DeviceTimes& start = run.times_at_start[i];
    run.progress.device_use.push_back(
        {static_cast<int>(i), Seconds(total.compute_ns - start.compute_ns),
         Seconds(total.bubble_ns - start.bubble_ns)});
  }
}

void Engine::Tick() {
  PublishDevices();
  loop_.After(kTick, [this] { Tick(); });
}

void Engine::PublishDevices() {
  const int64_t now = MonotonicNs();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < pool_.device_count(); ++i) {
    const DeviceTimes fresh = ledgers_[i].TakeNew(now);
    metrics_.AddDeviceTime(i, DeviceTime::kCompute,
                           absl::Nanoseconds(fresh.compute_ns));
    metrics_.AddDeviceTime(i, DeviceTime::kBubble,
                           absl::Nanoseconds(fresh.bubble_ns));
    metrics_.AddDeviceTime(i, DeviceTime::kIdle,
                           absl::Nanoseconds(fresh.idle_ns));
    metrics_.SetBubbleRatio(i, ledgers_[i].BubbleRatio(kBubbleWindowNs));
    metrics_.SetDeviceMemory(i, static_cast<int64_t>(memory_peak_bytes_[i]));
    const WorkerInfo& worker =
        pool_.info(pool_.DeviceWorker(static_cast<DeviceId>(i)));
    DeviceInfo& info = devices_[i];
    info.state = worker.lost ? DeviceState::kLost
                 : worker.up ? DeviceState::kUp
                             : DeviceState::kStarting;
    info.worker_pid = worker.pid;
    info.worker_restarts = std::max(0, worker.starts - 1);
    info.memory_used_bytes = static_cast<int64_t>(memory_peak_bytes_[i]);
    info.job_id = running_.has_value() ? running_->id : "";
    info.compute_seconds = Seconds(ledgers_[i].total().compute_ns);
    info.bubble_seconds = Seconds(ledgers_[i].total().bubble_ns);
    info.idle_seconds = Seconds(ledgers_[i].total().idle_ns);
  }
  arena_used_bytes_ = arena_.used_bytes();
  PublishArena();
}

void Engine::PublishArena() {
  const HostUse use =
      running_.has_value() ? running_->runner->host_use() : HostUse();
  const uint64_t known = use.weight_bytes + use.optimizer_bytes +
                         use.gradient_bytes + use.activation_bytes;
  const std::pair<ArenaUse, uint64_t> kinds[] = {
      {ArenaUse::kWeights, use.weight_bytes},
      {ArenaUse::kOptimizer, use.optimizer_bytes},
      {ArenaUse::kGradients, use.gradient_bytes},
      {ArenaUse::kActivations, use.activation_bytes},
      {ArenaUse::kOther, arena_.used_bytes() - known}};
  for (const auto& [kind, bytes] : kinds) {
    metrics_.SetHostArena(kind, static_cast<int64_t>(bytes));
  }
}

std::vector<DeviceInfo> Engine::Devices() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return devices_;
}

ServerInfo Engine::Server() {
  ServerInfo info;
  info.version = kVersion;
  info.start_time = start_time_;
  info.host_memory_limit_bytes = static_cast<int64_t>(arena_.limit_bytes());
  info.metrics_address = options_.metrics_address;
  const std::lock_guard<std::mutex> lock(mutex_);
  info.host_memory_used_bytes = static_cast<int64_t>(arena_used_bytes_);
  return info;
}

}  // namespace roundhouse
