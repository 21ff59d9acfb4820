// JobRunner: the plan of later steps.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/jobs/runner.h"

namespace roundhouse {
namespace {

std::string Milliseconds(int64_t ns) {
  return ns == std::numeric_limits<int64_t>::max()
             ? "impossible"
             : absl::StrFormat("%.1f ms", static_cast<double>(ns) * 1e-6);
}

// Bytes per nanosecond of the slowest link that workers measured, in its slower
// direction; 0: one has not.
double CalibratedLinkRate(const WorkerPool& pool) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < pool.device_count(); ++i) {
    const WorkerInfo& info =
        pool.info(pool.DeviceWorker(static_cast<DeviceId>(i)));
    if (info.lost) continue;
    least =
        std::min({least, info.h2d_bytes_per_second, info.d2h_bytes_per_second});
  }
  const bool known = least < std::numeric_limits<uint64_t>::max();
  return known ? static_cast<double>(least) * 1e-9 : 0;
}

}  // namespace

// After a step's last reduction; the plan changes when no other step has begun,
// so that no round uses the buffers.  Results do not depend on it.
void JobRunner::ReviewPlan() {
  if (spec().plan.has_value() || !costs_->training_measured()) return;
  if (found_plan_.has_value() && begun_step_ == reduced_step_) {
    const FoundPlan found = *std::exchange(found_plan_, std::nullopt);
    AdoptPlan(found);
  }
  absl::Duration micro_batch;
  for (int layer = 0; layer < costs_->layer_count(); ++layer) {
    micro_batch += costs_->Backward(layer);
  }
  const std::vector<double> speeds = dispatcher().DeviceSpeeds();
  if (!searching_ && !found_plan_.has_value() && !speeds.empty() &&
      review_.Due(absl::ToInt64Nanoseconds(micro_batch), speeds)) {
    SearchPlan(speeds);
  }
}

JobPlanQuestion JobRunner::QuestionOfNow(
    const std::vector<double>& speeds) const {
  const RoundBuffersOptions& buffers = buffers_->options();
  const int64_t tokens = buffers.rows * buffers.row_tokens;
  JobPlanQuestion question;
  question.limits =
      LimitsOf(options_.spec, options_.model.config, buffers.row_tokens,
               pool_.device_count(), options_.device);
  question.limits.buffers = buffers;
  question.costs = MeasuredCosts(*costs_, question.limits.model, tokens);
  for (const double speed : speeds) {
    question.machine.devices.push_back(
        {static_cast<int64_t>(options_.device.bytes), speed});
  }
  if (const double rate = CalibratedLinkRate(pool_); rate > 0) {
    question.machine.link_rate = rate;
  }
  rates_.Apply(question.machine);
  question.rounds = static_cast<int>(StepRounds(options_.spec));
  question.updates = UpdatesOf(options_.spec);
  // The rest is for other jobs, and for this one's saves.
  const uint64_t gap = arena_.largest_gap_bytes();
  question.host_bytes = (gap - std::min(gap, table_bytes_)) / 2;
  question.present = plan_;
  return question;
}

void JobRunner::SearchPlan(const std::vector<double>& speeds) {
  searching_ = true;
  auto found = std::make_shared<FoundPlan>();
  InBackground(
      [found, question = QuestionOfNow(speeds)] {
        absl::StatusOr<FoundPlan> plan = FindPlan(question);
        if (plan.ok()) *found = *std::move(plan);
        return plan.status();
      },
      [this, found](const absl::Status& status) {
        searching_ = false;
        if (phase_ != Phase::kStepping) return;
        if (status.ok() && found->better()) OnPlanFound(*found);
        if (!status.ok()) {
          listener_->OnNote(
              absl::StrCat("the plan stays: ", std::string(status.message())));
        }
      });
}

// Steps go on while its buffers' memory comes.
void JobRunner::OnPlanFound(const FoundPlan& found) {
  RoundBuffersOptions options = buffers_->options();
  options.plan = found.plan;
  absl::StatusOr<std::unique_ptr<RoundBuffers>> buffers =
      RoundBuffers::Create(arena_, options, buffers_.get());
  if (!buffers.ok()) return;  // the old plan goes on: it has its memory
  found_buffers_ = *std::move(buffers);
  searching_ = true;
  memory_wait_ =
      arena_.pages().WhenReady([this, found](const absl::Status& ready) {
        searching_ = false;
        if (ready.ok() && phase_ == Phase::kStepping) {
          found_plan_ = found;
        } else {
          found_buffers_.reset();
        }
      });
}

void JobRunner::AdoptPlan(const FoundPlan& found) {
  buffers_ = std::move(found_buffers_);
  plan_ = found.plan;
  listener_->OnNote(absl::StrCat(
      "step ", begun_step_, ": new plan from measured times: ", ToString(plan_),
      "; a step simulated with it ", Milliseconds(found.step_ns),
      ", with the one before ", Milliseconds(found.present_step_ns), "; ",
      found.ranked, " plans ranked, ", found.simulated, " simulated"));
}

}  // namespace roundhouse
