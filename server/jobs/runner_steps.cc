// JobRunner: steps, and what the dispatcher's actions become.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/reduction.h"
#include "nlohmann/json.hpp"
#include "server/jobs/runner.h"
#include "server/jobs/slot_costs.h"

namespace roundhouse {

LossSum SumLoss(const StepEntry& entry) {
  LossSum sum;
  double total = 0;
  for (const auto& [key, result] : entry.results) {
    total += result.loss_sum;
    sum.finite &= result.finite != 0;
  }
  sum.mean = total / static_cast<double>(entry.data.target_tokens);
  sum.finite &= std::isfinite(sum.mean);
  return sum;
}

// --- beginning ---

void JobRunner::BeginNext() {
  if (outcome_.has_value() || phase_ != Phase::kStepping) return;
  ROUNDHOUSE_CHECK(Idle()) << "step " << begun_step_;
  if (EvaluationDue()) {
    BeginEvaluation();
  } else if (begun_step_ < EndStep()) {
    BeginSteps();
  } else {
    BeginFinal();
  }
}

// A step or an evaluation has ended, and what follows it at once has begun.
void JobRunner::GoOn() {
  if (phase_ == Phase::kFinished) return;  // a save or an export failed at once
  if (outcome_.has_value()) {
    // What was begun after the step that had to end need not end.
    if (phase_ == Phase::kStopping && !abandoned_ && !quiet_) {
      return Stop(*outcome_);
    }
    quiet_ |= Idle();
    AfterQuiet();
    return;
  }
  const bool waits = saving_ || samples_.running();
  if (!waits && Idle()) BeginNext();
}

StepEntry JobRunner::MakeStep(bool train,
                              const std::vector<MicroBatch>& batches) {
  StepEntry entry;
  StepData& data = entry.data;
  data.train = train;
  data.dataset = train ? options_.train : options_.validation;
  data.recompute =
      spec().gradient_checkpointing == GradientCheckpointing::kLayer
          ? wire::Recompute::kLayer
          : wire::Recompute::kStage;
  const auto rounds = RoundRanges(static_cast<int64_t>(batches.size()),
                                  buffers_->options().micro_batches);
  for (const IndexRange& range : rounds) {
    RoundData& round = data.rounds.emplace_back();
    round.pass = next_pass_++;
    round.micro_batches.assign(batches.begin() + range.begin,
                               batches.begin() + range.end);
    const auto groups =
        GroupRanges(range.size(), options_.spec.gradient_groups());
    round.group_count = static_cast<uint32_t>(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      round.groups.insert(round.groups.end(), groups[g].size(),
                          static_cast<uint32_t>(g));
    }
    for (const MicroBatch& batch : round.micro_batches) {
      for (int64_t row : batch.rows) {
        data.target_tokens += data.dataset->TargetTokens(row);
      }
    }
  }
  data.reads_update = completed_step_;
  data.version = version_;
  entry.begun_ns = MonotonicNs();
  return entry;
}

// As many as the dispatcher takes, so that a device has its first slots of a
// step while it computes the last ones of the step before.  An evaluation waits
// for the last update, another plan and a loss scale for the last gradient.
void JobRunner::BeginSteps() {
  if (held_.has_value()) return;  // those that are begun end first
  const int64_t most = state_->options().stale ? 4 : 2;
  while (begun_step_ < EndStep() && !EvaluationDue() &&
         begun_step_ - completed_step_ < most &&
         (begun_step_ == reduced_step_ ||
          !(found_plan_.has_value() || updates_.scales_loss()))) {
    BeginTrainStep();
  }
}

void JobRunner::BeginTrainStep() {
  const int64_t step = ++begun_step_;
  StepEntry entry =
      MakeStep(true, CutMicroBatches(*options_.train, order_.Batch(step - 1),
                                     options_.spec.micro_batch_size()));
  entry.data.step = step;
  const bool stale = state_->options().stale;
  entry.data.reads_update = stale ? step - 2 : step - 1;
  entry.data.version = stale ? previous_version_ : version_;
  previous_version_ = version_;
  version_ = next_pass_++;
  entry.data.next_version = version_;
  entry.data.update = updates_.Begin(step);
  entry.data.loss_scale = updates_.loss_scale();
  entry.unit_norms.assign(state_->units().size(), 0.0);
  entry.unit_ns.assign(state_->units().size(), 0);
  // Where an evaluation follows, the checkpoint comes after it and has it.
  entry.save_after = SaveDue() && !EvaluationDue();
  Begin(std::move(entry), updates_.wait_for_norm());
}

void JobRunner::Begin(StepEntry entry, bool clip) {
  StepSpec step;
  step.step = static_cast<uint64_t>(entry.data.step);
  step.train = entry.data.train;
  step.clip = clip;
  step.plan = plan_;
  step.groups = static_cast<int>(options_.spec.gradient_groups());
  for (const RoundData& round : entry.data.rounds) {
    step.round_micro_batches.push_back(
        static_cast<int>(round.micro_batches.size()));
  }
  step.blocks = buffers_->contributions().blocks();
  step.layer_costs = MicroBatchCosts(*costs_);
  const uint64_t number = dispatcher().NextStepNumber(id());
  steps_.emplace(number, std::move(entry));
  HoldForNextSave();
  ROUNDHOUSE_CHECK(dispatcher().BeginStep(id(), step) == number);
  CarryOut();
}

// A save reads what its step left.  A later step may have begun that will be
// saved too: the first one not yet on disk decides.
void JobRunner::HoldForNextSave() {
  if (saving_ || !dispatching_) return;
  std::optional<uint64_t> after;
  for (const auto& [number, entry] : steps_) {
    if (!entry.save_after) continue;
    after = number;
    break;
  }
  dispatcher().HoldUpdatesAfter(id(), after);
}

// --- the dispatcher's actions ---

void JobRunner::Execute(const Action& action, const Enabler& by) {
  if (const auto* slot = std::get_if<RunSlotAction>(&action)) {
    SendSlot(*slot, by);
  } else if (const auto* back = std::get_if<WithdrawSlotAction>(&action)) {
    Withdraw(*back);
  } else if (const auto* op = std::get_if<RunHostOpAction>(&action)) {
    SendHostOp(*op);
  } else if (const auto* reduced = std::get_if<StepReducedAction>(&action)) {
    OnReduced(*reduced);
  } else if (const auto* done = std::get_if<StepDoneAction>(&action)) {
    OnDone(*done);
  } else {
    OnQuiet();
  }
}

void JobRunner::FillIfNeeded(StepEntry& entry, int round, int set) {
  RoundData& data = entry.data.rounds[round];
  if (data.filled) return;
  FillRound(data, *entry.data.dataset, set, *buffers_, arena_.arena());
  data.filled = true;
}

void JobRunner::SendSlot(const RunSlotAction& action, const Enabler& by) {
  StepEntry& entry = steps_.at(action.place.step_number);
  FillIfNeeded(entry, action.place.round, action.place.buffer_set);
  OutSlot& out = out_slots_[action.slot];
  const bool again = out.attempt != 0;
  if (out.lost) listener_->OnSlotReplayed(out.device);
  out.lost = false;
  out.device = action.device;
  out.action = action;
  out.enabled_ns = by.ns;
  wire::RunSlot command = SlotCommand(action, entry.data, *state_, *buffers_);
  command.enabled_ns = by.ns;
  command.enabled_by = by.cause;
  command.again = again ? 1 : 0;
  wide_sums_.OnSend(Now(), action, again, command);
  listener_->OnSlotCommand(command);
  out.attempt =
      pool_.Send(pool_.DeviceWorker(action.device), std::move(command), this);
  ROUNDHOUSE_CHECK(out.attempt != 0) << "device " << Number(action.device);
  listener_->OnSlotSent(out.attempt, action, entry.data.step);
}

void JobRunner::Withdraw(const WithdrawSlotAction& action) {
  // A slot that failed has left its worker already.
  if (failed_slots_.erase(action.slot) != 0) {
    dispatcher().SlotWithdrawn(action.slot);
    return;
  }
  pool_.Withdraw(action.device, out_slots_.at(action.slot).attempt);
  wide_sums_.OnGone(Now(), action.slot);
}

void JobRunner::SendHostOp(const RunHostOpAction& action) {
  StepEntry& entry = steps_.at(action.step_number);
  if (action.type == HostOpType::kGather) {
    FillIfNeeded(entry, action.round, action.buffer_set);
  }
  const uint64_t attempt =
      pool_.Send(pool_.HostWorker(),
                 HostCommand(action, entry.data, *state_, *buffers_), this);
  out_host_ops_[action.op] = {action, attempt};
}

void JobRunner::OnReduced(const StepReducedAction& action) {
  Publish();
  StepEntry& entry = steps_.at(action.step_number);
  const LossSum loss = SumLoss(entry);
  double squares = 0;
  for (double unit : entry.unit_norms) squares += unit;
  const std::optional<double> norm =
      updates_.EndStep(squares, entry.data.loss_scale, &entry.data.update);
  const bool skip = !norm.has_value() && updates_.scales_loss();
  if (!loss.finite || !(norm.has_value() || skip) || updates_.exhausted()) {
    FailNonFinite(entry, loss.finite ? "gradient norm" : "loss");
    return;
  }
  Report(entry, loss.mean, norm);
  costs_->EndStep();
  if (skip) {
    version_ = entry.data.version;  // nobody reads the one that never comes
    dispatcher().SkipUpdates(id(), action.step_number);
  } else if (updates_.wait_for_norm()) {
    dispatcher().AllowUpdates(id(), action.step_number);
  }
  if (outcome_.has_value()) return;
  reduced_step_ = entry.data.step;
  ReviewPlan();
  BeginSteps();
}

void JobRunner::FailNonFinite(const StepEntry& entry, const char* what) {
  const std::string when =
      entry.data.train
          ? absl::StrCat("step ", entry.data.step)
          : absl::StrCat("evaluation after step ", entry.data.step);
  const std::string scale =
      updates_.exhausted()
          ? absl::StrCat(" at the lowest loss scale, ", entry.data.loss_scale)
          : "";
  Fail(JobReason::kNonFiniteLoss,
       absl::StrCat(when, ": the ", what, " is not finite (NaN or infinity)",
                    scale));
}

void JobRunner::Report(StepEntry& entry, double loss,
                       std::optional<double> norm) {
  const int64_t now = MonotonicNs();
  const int64_t since = std::max(last_step_ns_, entry.begun_ns);
  last_step_ns_ = now;
  StepReport report;
  report.step = entry.data.step;
  report.loss = loss;
  report.learning_rate = entry.data.update.learning_rate;
  report.grad_norm = norm;
  if (updates_.scales_loss()) report.loss_scale = entry.data.loss_scale;
  report.epoch = static_cast<double>(entry.data.step) /
                 static_cast<double>(order_.steps_per_epoch());
  report.tokens = entry.data.target_tokens;
  report.seconds = static_cast<double>(now - since) * 1e-9;
  tokens_trained_ += report.tokens;
  since_log_.sum += loss;
  ++since_log_.steps;
  if (report.step % spec().logging_steps == 0 || report.step == EndStep()) {
    nlohmann::json line = {
        {"step", report.step},
        {"epoch", report.epoch},
        {"loss", since_log_.sum / static_cast<double>(since_log_.steps)},
        {"learning_rate", report.learning_rate}};
    if (norm.has_value()) line["grad_norm"] = *norm;
    if (report.loss_scale.has_value()) line["loss_scale"] = *report.loss_scale;
    history_.push_back(line.dump());
    since_log_ = {};
  }
  untold_steps_.push_back(report);
}

void JobRunner::OnDone(const StepDoneAction& action) {
  Publish();
  const auto found = steps_.find(action.step_number);
  const StepEntry entry = std::move(found->second);
  steps_.erase(found);
  wide_sums_.Forget(action.step_number);
  if (!entry.data.train) {
    AfterEvaluation(entry);
    if (!dispatching_) return;  // it failed the job
  } else {
    completed_step_ = entry.data.step;
    listener_->OnStepDone(completed_step_);
    const bool last = begun_step_ == completed_step_;
    const bool save = last ? SaveDue() && !EvaluationDue() : entry.save_after;
    if (save && !outcome_.has_value()) SaveAndGoOn();
    if (!outcome_.has_value() && !Idle()) BeginSteps();
  }
  GoOn();
}

void JobRunner::OnQuiet() {
  Publish();
  steps_.clear();
  out_slots_.clear();
  wide_sums_.Clear();
  quiet_ = true;
  AfterQuiet();
}

}  // namespace roundhouse
