#include "worker/board/slot_state.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace roundhouse::worker {
namespace {

void Release(BufferPool& pool, uint64_t& held_bytes) {
  held_bytes -= DeviceBytes(pool.need.bytes) * pool.all.size();
  pool.free.clear();
  pool.all.clear();
}

}  // namespace

Slot::Slot(uint64_t attempt_in, int64_t received_in, wire::RunSlot command_in,
           std::shared_ptr<const JobTables> tables_in, SlotPlan plan_in)
    : attempt(attempt_in),
      received_ns(received_in),
      command(std::move(command_in)),
      tables(std::move(tables_in)),
      plan(std::move(plan_in)) {
  stats.keep_intervals = command.trace;
}

SlotState::SlotState(uint64_t attempt_in, int64_t received_in,
                     wire::RunSlot command_in,
                     std::shared_ptr<const JobTables> tables_in,
                     SlotPlan plan_in)
    : Slot(attempt_in, received_in, std::move(command_in), std::move(tables_in),
           std::move(plan_in)),
      turn(command.turn),
      weights(command.units.size()),
      uploads(command.micro_batches.size()),
      inputs{plan.inputs, "an input"},
      gradients{plan.gradients, "an output's gradient"},
      output_buffers{plan.outputs, "an output"},
      held(command.units.size()),
      outputs(command.outputs.size(), OutputState::kComing),
      contributions_left(command.contributions.size()) {
  for (const PlannedUnit& unit : plan.units) {
    sums.push_back({unit.sums, "a gradient sum"});
    rounded.push_back({unit.rounded, "a rounded gradient sum"});
    sums_left.push_back(unit.contributions.size());
  }
}

void SlotState::NoteSum(size_t unit) {
  --contributions_left;
  if (--sums_left[unit] == 0) sums_down.push_back(command.units[unit].unit);
}

bool SlotState::FirstInputThere() const {
  return uploads.front().input.arrival == Arrival::kThere;
}

bool SlotState::FirstWeightsThere() const {
  const std::vector<uint32_t>& units = plan.layer_units.front();
  return std::all_of(units.begin(), units.end(), [this](uint32_t unit) {
    return weights[unit].arrival == Arrival::kThere;
  });
}

BufferPool& SlotState::Pool(const PoolName& name) {
  switch (name.kind) {
    case PoolName::Kind::kOutputs:
      break;
    case PoolName::Kind::kSums:
      return sums[name.unit];
    case PoolName::Kind::kRounded:
      return rounded[name.unit];
  }
  return output_buffers;
}

void SlotState::Withdraw() {
  withdrawn = true;
  Abandon();
}

void SlotState::Fail(absl::Status why) {
  if (failure.ok()) failure = std::move(why);
  Abandon();
}

void SlotState::FailUnlessAbandoned(absl::Status why) {
  if (!abandoned) Fail(std::move(why));
}

void SlotState::EndCompute(absl::Status status, ComputeRecord record) {
  phase = ComputePhase::kComputed;
  whole = status.ok();
  computed = std::move(record);
  if (status.ok()) {
    ReleaseInputs();
  } else {
    FailUnlessAbandoned(std::move(status));
  }
}

bool SlotState::Down() const {
  return contributions_left == 0 &&
         std::all_of(outputs.begin(), outputs.end(), [](OutputState state) {
           return state == OutputState::kCopied ||
                  state == OutputState::kSettled;
         });
}

bool SlotState::Finished() const {
  return whole && failure.ok() && copies_in_flight == 0 &&
         contributions_left == 0 &&
         std::all_of(outputs.begin(), outputs.end(), [](OutputState state) {
           return state == OutputState::kSettled;
         });
}

bool SlotState::CanBeDropped() const {
  return abandoned && phase != ComputePhase::kComputing &&
         copies_in_flight == 0;
}

uint64_t SlotState::planned_bytes() const {
  return phase == ComputePhase::kComputed
             ? std::max(held_bytes, plan.draining_bytes())
             : plan.device_bytes();
}

void SlotState::ReleaseUploads(size_t micro_batch) {
  const auto give = [](BufferPool& pool, Upload& upload) {
    if (upload.buffer != nullptr) pool.free.push_back(upload.buffer);
    upload = Upload();
  };
  give(inputs, uploads[micro_batch].input);
  give(gradients, uploads[micro_batch].gradient);
}

void SlotState::ReleaseInputs() {
  for (auto& buffer : weight_buffers) {
    held_bytes -= DeviceBytes(buffer->bytes());
  }
  weight_buffers.clear();
  weights.assign(weights.size(), Upload());
  uploads.assign(uploads.size(), MicroBatchUploads());
  Release(inputs, held_bytes);
  Release(gradients, held_bytes);
  for (size_t unit = 0; unit < sums.size(); ++unit) {
    if (plan.units[unit].rounded.count > 0) Release(sums[unit], held_bytes);
  }
}

void SlotState::ReleaseAll() {
  ReleaseInputs();
  held.clear();
  Release(output_buffers, held_bytes);
  for (BufferPool& pool : sums) Release(pool, held_bytes);
  for (BufferPool& pool : rounded) Release(pool, held_bytes);
  ROUNDHOUSE_CHECK(held_bytes == 0) << held_bytes << " bytes not given back";
}

wire::SlotDone SlotState::Done(int64_t now_ns,
                               uint64_t memory_peak_bytes) const {
  wire::SlotDone done;
  done.slot = command.slot;
  done.started_ns = computed.started_ns;
  done.ended_ns = now_ns;
  done.wait_ns = computed.waited_ns;
  done.compute_ns =
      computed.ended_ns - computed.started_ns - computed.waited_ns;
  done.h2d_ns = stats.busy_ns[static_cast<int>(wire::Direction::kH2D)];
  done.d2h_ns = stats.busy_ns[static_cast<int>(wire::Direction::kD2H)];
  done.longest_activation_wait_ns = stats.longest_activation_wait_ns;
  for (int d = 0; d < wire::kDirections; ++d) {
    for (int p = 0; p < wire::kPurposes; ++p) {
      done.bytes[d][p] = stats.bytes[d][p];
    }
    done.copies_left_out += stats.intervals_left_out[d];
    done.copies.insert(done.copies.end(), stats.intervals[d].begin(),
                       stats.intervals[d].end());
  }
  done.device_memory_peak_bytes = memory_peak_bytes;
  done.results = computed.results;
  done.layers = computed.layers;
  return done;
}

}  // namespace roundhouse::worker
