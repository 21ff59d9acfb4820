// StepRun: what a device computes next.
#include <algorithm>
#include <optional>

#include "scheduler/simulate/step_run.h"

namespace roundhouse {

void StepRun::CountReadyIdle(int64_t until_ns) {
  if (schedule_.ready_idle_ns.empty()) return;
  const bool all_run = std::all_of(parts_left_.begin(), parts_left_.end(),
                                   [](int left) { return left > 0; });
  if (!all_run) return;
  schedule_.shared_ns = until_ns;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (devices_[d].op.has_value()) continue;
    for (const DeviceLane& lane : devices_[d].lanes) {
      if (lane.parts.empty()) continue;
      if (!lane.parts.front().run->Next().has_value()) continue;
      schedule_.ready_idle_ns[d] += until_ns - now_ns_;
      break;
    }
  }
}

// One of another job overtakes the oldest while that waits, or when its turn is
// lower; but only when it will wait for nothing (worker/board/slot_table.h).
PartRun* StepRun::NextNormal(const DeviceRun& device) {
  const SentPart* oldest = nullptr;
  for (const DeviceLane& lane : device.lanes) {
    if (lane.parts.empty() || lane.parts.front().backfill) continue;
    const SentPart& front = lane.parts.front();
    if (oldest == nullptr || front.order < oldest->order) {
      oldest = &front;
    }
  }
  if (oldest == nullptr) return nullptr;
  const SentPart* next = oldest;
  bool waits = !oldest->run->ready();
  for (const DeviceLane& lane : device.lanes) {
    if (lane.parts.empty() || lane.parts.front().backfill) continue;
    const SentPart& other = lane.parts.front();
    if (&other == oldest) continue;
    if ((waits || other.turn < next->turn) && MayOvertake(*other.run)) {
      next = &other;
      waits = false;
    }
  }
  return next->run;
}

// The least time until the part can go on: weights and activations come at the
// link's rate at best, and another part makes its micro-batches in order.
// Host work is not foretold.
int64_t StepRun::WaitNs(int d, const PartRun& run) {
  if (const std::optional<int> layer = run.AwaitedWeights()) {
    const std::optional<int64_t> bytes =
        transfers_.BytesUntilWeights(Transfers::Up(d), run, *layer);
    return bytes.has_value() ? LinkNs(*bytes) : TransferRates::kNever;
  }
  JobRun& job = *jobs_[run.place().job];
  int64_t wait_ns = 0;
  for (const Boundary& boundary : run.Inputs(run.lap())) {
    if (job.InHost(boundary)) continue;
    const PartRun* const maker = job.MakerOf(boundary);
    if (maker == nullptr) return TransferRates::kNever;
    const int64_t laps =
        boundary.micro_batch - maker->micro_batch(maker->lap()) + 1;
    const int there = device_of_[maker->place().number];
    int64_t made_ns = std::max<int64_t>(0, laps) * LapNs(d, *maker);
    if (laps == 1 && there >= 0 && devices_[there].current == maker &&
        devices_[there].guest == nullptr && devices_[there].op.has_value()) {
      made_ns = devices_[there].op_end_ns - now_ns_;
    }
    wait_ns =
        std::max(wait_ns, made_ns + 2 * LinkNs(job.costs().BoundaryBytes()));
  }
  return wait_ns;
}

int64_t StepRun::LinkNs(int64_t bytes) const {
  return static_cast<int64_t>(static_cast<double>(bytes) / machine_.link_rate);
}

// A micro-batch of the part.
int64_t StepRun::LapNs(int d, const PartRun& run) const {
  const int64_t laps = run.lap_count();
  return machine_.devices[d].RunNs(
      PartNs(run.part(), job_of_[run.place().number]->costs()) / laps);
}

// While no other part can go on, layer by layer: what it has computed of a
// micro-batch stays on the device, for both jobs' memory was planned for.
// `wait_ns`: no other part goes on before that.
PartRun* StepRun::NextBackfill(int d, int64_t wait_ns) {
  const DeviceRun& device = devices_[d];
  const SentPart* next = nullptr;
  for (const DeviceLane& lane : device.lanes) {
    if (lane.parts.empty() || !lane.parts.front().backfill) continue;
    const SentPart& front = lane.parts.front();
    if (next != nullptr && front.turn >= next->turn) continue;
    const std::optional<PartRun::Op> op = front.run->NextLayer();
    if (!op.has_value()) continue;
    if (OpNs(d, *front.run, *op) - options_.backfill_grace_ns <= wait_ns) {
      next = &front;
    }
  }
  return next == nullptr ? nullptr : next->run;
}

PartRun* StepRun::NextToCompute(int d) {
  const DeviceRun& device = devices_[d];
  PartRun* const normal =
      device.current != nullptr ? device.current : NextNormal(device);
  if (normal != nullptr && normal->Next().has_value()) return normal;
  if (!any_backfill_) return normal;
  PartRun* const backfill = NextBackfill(
      d, normal == nullptr ? TransferRates::kNever : WaitNs(d, *normal));
  return backfill != nullptr ? backfill : normal;
}

bool StepRun::MayOvertake(const PartRun& run) {
  JobRun& job = *jobs_[run.place().job];
  return run.ready() && (!run.part().backward() || run.sums_allowed()) &&
         job.InputsInHost(run) && job.WeightsMayGoUp(run);
}

}  // namespace roundhouse
