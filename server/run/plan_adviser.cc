#include "server/run/plan_adviser.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/planning/plan_costs.h"
#include "server/planning/slot_costs.h"

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
    const auto device = static_cast<DeviceId>(i);
    if (pool.gone(device)) continue;
    const WorkerInfo& info = pool.info(pool.DeviceWorker(device));
    least =
        std::min({least, info.h2d_bytes_per_second, info.d2h_bytes_per_second});
  }
  const bool known = least < std::numeric_limits<uint64_t>::max();
  return known ? static_cast<double>(least) * 1e-9 : 0;
}

}  // namespace

PlanAdviser::PlanAdviser(const Surroundings& around,
                         const RunnerOptions& options, Calls calls)
    : around_(around),
      options_(options),
      calls_(std::move(calls)),
      costs_(ActiveLayerBytes(TrainedOf(options.spec, options.model.config))) {}

// Costs are for a device of speed 1.
void PlanAdviser::ObserveSlot(SlotKind kind, double speed,
                              const wire::SlotDone& done) {
  rates_.ObserveSlot(done);
  const bool forward_only =
      kind == SlotKind::kForward || kind == SlotKind::kEvaluate;
  for (const wire::LayerTime& time : done.layers) {
    const int layer = static_cast<int>(time.layer);
    // What a worker reports of itself is checked by the cost model; a value
    // outside its range is not an observation.
    costs_
        .Observe(layer,
                 forward_only ? LayerPass::kForward : LayerPass::kRecompute,
                 speed * absl::Nanoseconds(time.forward_ns))
        .IgnoreError();
    if (forward_only) continue;
    costs_
        .Observe(layer, LayerPass::kBackward,
                 speed * absl::Nanoseconds(time.backward_ns))
        .IgnoreError();
  }
}

void PlanAdviser::ObserveHostOp(const RunHostOpAction& action, int64_t elements,
                                DType contributions, int64_t ns) {
  rates_.ObserveHostOp(action, elements, contributions, ns);
}

std::vector<MicroBatchCost> PlanAdviser::LayerCosts() const {
  return MicroBatchCosts(costs_);
}

void PlanAdviser::Review(const StepMarks& marks) {
  if (options_.spec.spec().plan.has_value() || !costs_.training_measured()) {
    return;
  }
  if (found_.has_value() && marks.begun == marks.reduced) Adopt(marks.begun);
  absl::Duration micro_batch;
  for (int layer = 0; layer < costs_.layer_count(); ++layer) {
    micro_batch += costs_.Backward(layer);
  }
  const std::vector<double> speeds = around_.dispatcher.DeviceSpeeds();
  if (!searching_ && !found_.has_value() && !speeds.empty() &&
      review_.Due(absl::ToInt64Nanoseconds(micro_batch), speeds)) {
    Search(speeds);
  }
}

// The rest is for other jobs, and for this one's saves.
uint64_t PlanAdviser::FreeBytes() const {
  const uint64_t gap = around_.memory.arena().largest_gap_bytes();
  return (gap - std::min(gap, around_.memory.table_bytes())) / 2;
}

JobPlanQuestion PlanAdviser::QuestionOfNow(
    const std::vector<double>& speeds) const {
  const RoundBuffersOptions& buffers = around_.memory.buffers().options();
  const int64_t tokens = buffers.rows * buffers.row_tokens;
  JobPlanQuestion question;
  question.limits =
      LimitsOf(options_.spec, options_.model.config, buffers.row_tokens,
               around_.pool.device_count(), options_.device);
  question.limits.buffers = buffers;
  question.costs = MeasuredCosts(costs_, question.limits.model, tokens);
  for (const double speed : speeds) {
    question.machine.devices.push_back(
        {static_cast<int64_t>(options_.device.bytes), speed});
  }
  if (const double rate = CalibratedLinkRate(around_.pool); rate > 0) {
    question.machine.link_rate = rate;
  }
  rates_.Apply(question.machine);
  question.rounds = static_cast<int>(StepRounds(options_.spec));
  question.updates = UpdatesOf(options_.spec);
  question.host_bytes = FreeBytes();
  question.sum_blocks = around_.memory.buffers().contributions().blocks();
  question.present = around_.memory.plan();
  return question;
}

void PlanAdviser::Search(const std::vector<double>& speeds) {
  searching_ = true;
  // Shared: written off the loop, read on it.
  auto found = std::make_shared<FoundPlan>();
  around_.background.Run(
      [found, question = QuestionOfNow(speeds)] {
        absl::StatusOr<FoundPlan> plan = FindPlan(question);
        if (plan.ok()) *found = *std::move(plan);
        return plan.status();
      },
      [this, found](const absl::Status& status) {
        searching_ = false;
        if (!calls_.wanted()) return;
        if (status.ok() && found->better()) OnFound(*found);
        if (!status.ok()) {
          calls_.note(
              absl::StrCat("the plan stays: ", std::string(status.message())));
        }
      });
}

// Steps go on while its buffers' memory comes.
void PlanAdviser::OnFound(const FoundPlan& plan) {
  absl::StatusOr<std::unique_ptr<RoundBuffers>> buffers =
      RoundBuffers::WithPlan(around_.memory.arena(), plan.plan,
                             around_.memory.buffers(), FreeBytes());
  if (!buffers.ok()) {  // the old plan goes on: it has its memory
    calls_.note(absl::StrCat("the plan stays: of host memory ",
                             std::string(buffers.status().message())));
    return;
  }
  coming_ = *std::move(buffers);
  searching_ = true;
  wait_ = around_.memory.arena().pages().WhenReady(
      [this, plan](const absl::Status& ready) {
        searching_ = false;
        std::unique_ptr<RoundBuffers> buffers = std::move(coming_);
        if (ready.ok() && calls_.wanted()) {
          found_ = Found{plan, std::move(buffers)};
        }
      });
}

void PlanAdviser::Adopt(int64_t step) {
  Found found = *std::exchange(found_, std::nullopt);
  const FoundPlan& plan = found.plan;
  around_.memory.Adopt(plan.plan, std::move(found.buffers));
  calls_.note(absl::StrCat(
      "step ", step, ": new plan from measured times: ", ToString(plan.plan),
      "; a step simulated with it ", Milliseconds(plan.step_ns),
      ", with the one before ", Milliseconds(plan.present_step_ns), "; ",
      plan.ranked, " plans ranked, ", plan.simulated, " simulated"));
}

void PlanAdviser::Stop() {
  around_.memory.arena().pages().Forget(wait_);
  coming_.reset();
  found_.reset();
}

}  // namespace roundhouse
