#include "server/steps/commands.h"

#include <algorithm>

#include "base/reduction.h"
#include "base/wire/peers.h"
#include "scheduler/plan/step_plan.h"

namespace roundhouse {
namespace {

uint64_t Tokens(const MicroBatch& micro_batch) {
  return micro_batch.rows.size() *
         static_cast<uint64_t>(micro_batch.row_tokens);
}

uint64_t ActivationBytes(const MicroBatch& micro_batch,
                         const RoundBuffers& buffers) {
  return Tokens(micro_batch) * buffers.options().hidden_size *
         DTypeBytes(buffers.options().dtype);
}

uint64_t IdBytes(const MicroBatch& micro_batch) {
  return Tokens(micro_batch) * sizeof(int32_t);
}

}  // namespace

wire::PickUse PickUseOf(const RunSlotAction& action, const StepData& step,
                        const RoundBuffers& buffers) {
  const bool picks = buffers.options().expert_layers > 0 && step.train;
  if (!picks) return wire::PickUse::kNone;
  const auto& outputs = action.boundaries.outputs;
  const bool again = std::any_of(
      outputs.begin(), outputs.end(),
      [](const auto& output) { return output.value == BoundaryValue::kAgain; });
  return again || action.kind == SlotKind::kBackward ? wire::PickUse::kRead
                                                     : wire::PickUse::kWrite;
}

namespace {

bool ComputesGradients(SlotKind kind) {
  return kind == SlotKind::kFused || kind == SlotKind::kBackward;
}

bool Contains(const std::vector<int>& units, int unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

// The groups of each sum that the slot leaves of its trained units.
std::vector<IndexRange> SumsOf(const RunSlotAction& action,
                               const RoundData& round,
                               const RoundBuffers& buffers) {
  std::vector<IndexRange> sums;
  if (!ComputesGradients(action.kind)) return sums;
  const int64_t first = round.groups[action.micro_batches.begin];
  const int64_t last = round.groups[action.micro_batches.end - 1];
  for (const IndexRange& groups : ContributedGroups(
           buffers.options().plan, action.layers.first, round.group_count)) {
    if (first <= groups.begin && groups.end <= last + 1) sums.push_back(groups);
  }
  return sums;
}

void AddUnits(const RunSlotAction& action, const StepData& step,
              const TrainingState& state, const RoundBuffers& buffers,
              wire::RunSlot& slot) {
  const auto sums = SumsOf(action, step.rounds[action.place.round], buffers);
  const TrainingStateOptions& job = state.options();
  size_t blocks = 0;  // of the layers before
  for (int layer = action.layers.first; layer <= action.layers.last; ++layer) {
    bool trained = false;
    for (int unit : TrainingUnitsOfLayer(job.model, job.adapter, layer)) {
      slot.units.push_back({static_cast<uint32_t>(unit),
                            static_cast<uint32_t>(layer),
                            state.Weights(unit, step.reads_update),
                            state.Version(unit, step.version)});
      if (!state.trainable(unit)) continue;
      trained = true;
      // An earlier attempt left them, and they may be under reduction.
      if (Contains(action.units_down, state.SummedUnit(unit))) continue;
      for (size_t i = 0; i < sums.size(); ++i) {
        slot.contributions.push_back({static_cast<uint32_t>(unit),
                                      static_cast<uint32_t>(sums[i].begin),
                                      static_cast<uint32_t>(sums[i].size()), 0,
                                      buffers.contributions().Buffer(
                                          unit, action.blocks.at(blocks + i))});
      }
    }
    if (trained) blocks += sums.size();
  }
  ROUNDHOUSE_CHECK(blocks == action.blocks.size())
      << blocks << " of " << action.blocks.size() << " blocks";
}

// The layer whose backward slot leaves sums of the unit: of a tied embedding
// the head's.
int ContributingLayer(int unit, const TrainingState& state) {
  return unit == 0 ? static_cast<int>(state.options().model.layer_count)
                   : unit - 1;
}

// The parts of a layer's backward slot in a round: the sums that each leaves of
// a unit, of all in the order of their groups.
std::vector<IndexRange> PartSums(const Plan& plan, int layer,
                                 const std::vector<IndexRange>& sums,
                                 int64_t groups) {
  const int slot = BackwardSlotWith(plan, layer);
  std::vector<IndexRange> parts;
  int64_t next = 0;
  for (const IndexRange& share : GroupShares(plan, slot, groups)) {
    if (share.size() == 0) continue;
    IndexRange part = {next, next};
    while (part.end < static_cast<int64_t>(sums.size()) &&
           sums[part.end].end <= share.end) {
      ++part.end;
    }
    next = part.end;
    parts.push_back(part);
  }
  return parts;
}

// How many micro-batches of the step come before the round.
uint32_t FirstStepIndex(const StepData& step, int round) {
  size_t before = 0;
  for (int i = 0; i < round; ++i) {
    before += step.rounds[i].micro_batches.size();
  }
  return static_cast<uint32_t>(before);
}

// REQUIRES: one of the action's.
void AddMicroBatch(const RunSlotAction& action, const StepData& step, int i,
                   const RoundBuffers& buffers, wire::RunSlot& slot) {
  const RoundData& round = step.rounds[action.place.round];
  const MicroBatch& data = round.micro_batches[i];
  const int set = action.place.buffer_set;
  const uint64_t bytes = ActivationBytes(data, buffers);
  wire::SlotMicroBatch micro_batch;
  micro_batch.index = static_cast<uint32_t>(i);
  micro_batch.group = round.groups[i];
  micro_batch.rows = static_cast<uint32_t>(data.rows.size());
  micro_batch.row_tokens = static_cast<uint32_t>(data.row_tokens);
  micro_batch.step_index =
      FirstStepIndex(step, action.place.round) + micro_batch.index;
  if (buffers.options().packed) {
    micro_batch.positions = {buffers.Positions(set, i), IdBytes(data)};
  }
  if (slot.pick_use != wire::PickUse::kNone) {
    micro_batch.picks = {
        buffers.Picks(set, i),
        PickBytes(buffers.options().expert_layers, Tokens(data),
                  buffers.options().experts_per_token)};
    micro_batch.picked = {buffers.PickWord(set, i), round.pass};
    if (slot.pick_use == wire::PickUse::kWrite) {
      micro_batch.loads_offset = buffers.Loads(set, i);
      micro_batch.tokens_offset = buffers.Tokens(set, i);
    }
  }
  const size_t position = slot.micro_batches.size();
  const int boundary = action.layers.first;
  micro_batch.input = {buffers.Block(action.boundaries.inputs.at(position)),
                       bytes};
  micro_batch.input_ready = {
      buffers.Word(set, action.boundaries.input, boundary, i), round.pass};
  if (action.kind == SlotKind::kFused || action.kind == SlotKind::kEvaluate) {
    micro_batch.labels = {buffers.Labels(set, i), IdBytes(data)};
  }
  if (action.kind == SlotKind::kBackward) {
    const int given = action.layers.last + 1;
    micro_batch.gradient = {
        buffers.Block(action.boundaries.gradients.at(position)), bytes};
    micro_batch.gradient_ready = {
        buffers.Word(set, BoundaryValue::kGradient, given, i), round.pass};
  }
  slot.micro_batches.push_back(micro_batch);
}

// What the slot writes of the micro-batch that AddMicroBatch added last.
void AddOutputs(const RunSlotAction& action, const StepData& step, int i,
                const RoundBuffers& buffers, wire::RunSlot& slot) {
  const RoundData& round = step.rounds[action.place.round];
  const size_t position = slot.micro_batches.size() - 1;
  const uint64_t bytes = ActivationBytes(round.micro_batches[i], buffers);
  for (const SlotBoundaries::Output& output : action.boundaries.outputs) {
    const bool gradient = output.value == BoundaryValue::kGradient;
    slot.outputs.push_back(
        {static_cast<uint32_t>(position),
         static_cast<uint32_t>(output.boundary),
         gradient ? wire::OutputKind::kGradient : wire::OutputKind::kActivation,
         0,
         {buffers.Block(output.blocks.at(position)), bytes},
         {buffers.Word(action.place.buffer_set, output.value, output.boundary,
                       i),
          round.pass}});
  }
}

void AddHostMicroBatches(const RunHostOpAction& action, const RoundData& round,
                         const RoundBuffers& buffers, wire::HostOp& op) {
  const BoundaryValue value = action.kind == HostOpKind::kGather
                                  ? BoundaryValue::kActivation
                                  : BoundaryValue::kGradient;
  const int set = action.buffer_set;
  for (size_t i = 0; i < round.micro_batches.size(); ++i) {
    const MicroBatch& data = round.micro_batches[i];
    const int index = static_cast<int>(i);
    wire::HostMicroBatch micro_batch;
    micro_batch.group = round.groups[i];
    micro_batch.rows = static_cast<uint32_t>(data.rows.size());
    micro_batch.row_tokens = static_cast<uint32_t>(data.row_tokens);
    micro_batch.tokens = {buffers.Tokens(set, index), IdBytes(data)};
    micro_batch.data = {buffers.Block(action.row_blocks.at(i)),
                        ActivationBytes(data, buffers)};
    micro_batch.word = {buffers.Word(set, value, 0, index), round.pass};
    op.micro_batches.push_back(micro_batch);
  }
}

// Where a part's slice of a unit lies: in the block of its first sum.
wire::BufferRef SliceBuffer(const IndexRange& slice, int unit, int block,
                            const RoundBuffers& buffers) {
  wire::BufferRef buffer = buffers.contributions().Buffer(unit, block);
  const uint64_t bytes = static_cast<uint64_t>(slice.size()) * sizeof(float);
  ROUNDHOUSE_CHECK(bytes <= buffer.bytes) << bytes << " in " << buffer.bytes;
  buffer.bytes = bytes;
  return buffer;
}

void AddSlices(const RunHostOpAction& action,
               const std::vector<IndexRange>& parts, const TrainingState& state,
               const RoundBuffers& buffers, wire::HostOp& op) {
  const int unit = static_cast<int>(op.unit);
  op.contribution_dtype = DType::kF32;
  for (size_t i = 0; i < parts.size(); ++i) {
    const IndexRange slice =
        wire::SliceOf(state.layout(unit).element_count, parts.size(), i);
    if (slice.size() == 0) continue;
    op.contributions.push_back(
        {0, op.total_groups,
         SliceBuffer(slice, unit, action.blocks[parts[i].begin], buffers),
         static_cast<uint64_t>(slice.begin),
         static_cast<uint64_t>(slice.size())});
  }
}

// What slots sent of the unit; of unit 0 a tied head's share.
void AddContributions(const RunHostOpAction& action, const StepData& step,
                      const TrainingState& state, const RoundBuffers& buffers,
                      wire::HostOp& op) {
  const RoundData& round = step.rounds[action.round];
  const uint32_t groups = round.group_count;
  op.total_groups = groups;
  const int layer = ContributingLayer(action.unit, state);
  const std::vector<IndexRange> sums =
      ContributedGroups(buffers.options().plan, layer, groups);
  ROUNDHOUSE_CHECK(sums.size() == action.blocks.size())
      << sums.size() << " sums in " << action.blocks.size() << " blocks";
  const int unit = static_cast<int>(op.unit);
  if (round.sliced.count(unit) != 0) {
    AddSlices(action, PartSums(buffers.options().plan, layer, sums, groups),
              state, buffers, op);
    return;
  }
  op.contribution_dtype = buffers.contributions().dtype();
  for (size_t i = 0; i < sums.size(); ++i) {
    op.contributions.push_back(
        {static_cast<uint32_t>(sums[i].begin),
         static_cast<uint32_t>(sums[i].size()),
         buffers.contributions().Buffer(unit, action.blocks[i])});
  }
}

void FillReduce(const RunHostOpAction& action, const StepData& step,
                const TrainingState& state, const RoundBuffers& buffers,
                wire::HostOp& op) {
  const RoundData& round = step.rounds[action.round];
  op.total_groups = round.group_count;
  op.sum_write =
      action.add_to_sum ? wire::SumWrite::kAdd : wire::SumWrite::kReplace;
  const bool embedding = action.unit == 0;
  // The embedding always wants it: rows that come to it keep the rest.
  op.want_norm = action.last_round || embedding;
  if (action.rows) AddHostMicroBatches(action, round, buffers, op);
  if (embedding && action.blocks.empty()) {
    op.keep_partials = action.add_to_sum;
    return;
  }
  AddContributions(action, step, state, buffers, op);
}

void FillUpdate(const RunHostOpAction& action, const StepData& step,
                const TrainingState& state, const RoundBuffers& buffers,
                wire::HostOp& op) {
  if (action.reduces()) {
    op.want_norm = true;
    AddContributions(action, step, state, buffers, op);
  }
  op.weights = state.Weights(static_cast<int>(op.unit), step.step);
  op.version = state.Version(static_cast<int>(op.unit), step.next_version);
  op.step = static_cast<uint64_t>(step.update.number);
  op.learning_rate = step.update.learning_rate;
  op.beta1 = step.update.beta1;
  op.beta2 = step.update.beta2;
  op.epsilon = step.update.epsilon;
  op.weight_decay = step.update.weight_decay;
  op.gradient_scale = step.update.gradient_scale;
}

}  // namespace

wire::RunSlot SlotCommand(const RunSlotAction& action, const StepData& step,
                          const TrainingState& state,
                          const RoundBuffers& buffers) {
  const RoundData& round = step.rounds[action.place.round];
  wire::RunSlot slot;
  slot.job = state.options().job;
  slot.slot = Number(action.slot);
  slot.pass = round.pass;
  slot.step = static_cast<uint64_t>(step.step);
  slot.mode = step.train ? wire::StepMode::kTrain : wire::StepMode::kEvaluate;
  slot.kind = action.kind;
  slot.recompute = step.recompute;
  slot.first_layer = static_cast<uint32_t>(action.layers.first);
  slot.last_layer = static_cast<uint32_t>(action.layers.last);
  slot.total_groups = round.group_count;
  slot.contribution_dtype = buffers.contributions().dtype();
  slot.turn = action.turn;
  slot.pick_use = PickUseOf(action, step, buffers);
  if (slot.first_layer == 0) {
    slot.gather_begun = {buffers.GatherWord(action.place.buffer_set),
                         round.pass};
  }
  slot.loss_scale = step.loss_scale / static_cast<double>(step.target_tokens);
  AddUnits(action, step, state, buffers, slot);
  for (int64_t i = action.micro_batches.begin; i < action.micro_batches.end;
       ++i) {
    const int index = static_cast<int>(i);
    AddMicroBatch(action, step, index, buffers, slot);
    AddOutputs(action, step, index, buffers, slot);
  }
  return slot;
}

std::vector<int> ContributedUnitsOf(const RunSlotAction& action,
                                    const TrainingState& state) {
  std::vector<int> units;
  const TrainingStateOptions& job = state.options();
  for (int layer = action.layers.first; layer <= action.layers.last; ++layer) {
    for (int unit : TrainingUnitsOfLayer(job.model, job.adapter, layer)) {
      if (state.trainable(unit)) units.push_back(unit);
    }
  }
  return units;
}

wire::PeerSums ExchangeCommand(const RunSlotAction& action,
                               const StepData& step, int unit,
                               const TrainingState& state,
                               const RoundBuffers& buffers) {
  const RoundData& round = step.rounds[action.place.round];
  const int layer = ContributingLayer(unit, state);
  const Plan& plan = buffers.options().plan;
  const std::vector<IndexRange> sums =
      ContributedGroups(plan, layer, round.group_count);
  const std::vector<IndexRange> parts =
      PartSums(plan, layer, sums, round.group_count);
  wire::PeerSums command;
  command.dtype = buffers.contributions().dtype();
  command.chunk_elements =
      wire::PeerScratch::Largest(sums.size(), command.dtype).chunk_elements;
  const int64_t first_group = round.groups[action.micro_batches.begin];
  IndexRange own;
  for (size_t i = 0; i < parts.size(); ++i) {
    const IndexRange slice =
        wire::SliceOf(state.layout(unit).element_count, parts.size(), i);
    command.members.push_back({0, 0, static_cast<uint64_t>(slice.begin),
                               static_cast<uint64_t>(slice.size())});
    for (int64_t s = parts[i].begin; s < parts[i].end; ++s) {
      command.sums.push_back(
          {static_cast<uint32_t>(i), static_cast<uint32_t>(sums[s].size())});
    }
    if (sums[parts[i].begin].begin != first_group) continue;
    command.self = static_cast<uint32_t>(i);
    own = slice;
  }
  // Blocks of the slot's trained layers before this one come first.
  size_t block = 0;
  for (int before = action.layers.first; before < layer; ++before) {
    const LayerRange one = {before, before};
    RunSlotAction alone = action;
    alone.layers = one;
    if (!ContributedUnitsOf(alone, state).empty()) {
      block += static_cast<size_t>(parts[command.self].size());
    }
  }
  command.slice = SliceBuffer(own, unit, action.blocks.at(block), buffers);
  return command;
}

wire::HostOp HostCommand(const RunHostOpAction& action, const StepData& step,
                         const TrainingState& state,
                         const RoundBuffers& buffers) {
  wire::HostOp op;
  op.job = state.options().job;
  op.operation = Number(action.op);
  op.kind = action.kind;
  op.unit = static_cast<uint32_t>(state.TrainedUnit(action.unit));
  switch (action.kind) {
    case HostOpKind::kGather:
      op.unit = 0;
      op.weights = state.Weights(0, step.reads_update);
      op.version = state.Version(0, step.version);
      op.begun = {buffers.GatherWord(action.buffer_set),
                  step.rounds[action.round].pass};
      AddHostMicroBatches(action, step.rounds[action.round], buffers, op);
      break;
    case HostOpKind::kReduce:
      FillReduce(action, step, state, buffers, op);
      break;
    case HostOpKind::kUpdate:
      FillUpdate(action, step, state, buffers, op);
      break;
  }
  return op;
}

void FillRound(const RoundData& round, const Dataset& dataset, int set,
               const RoundBuffers& buffers, const wire::Arena& arena) {
  for (size_t i = 0; i < round.micro_batches.size(); ++i) {
    const MicroBatch& data = round.micro_batches[i];
    const int index = static_cast<int>(i);
    const uint64_t count = Tokens(data);
    auto* tokens = arena.At<int32_t>(buffers.Tokens(set, index), count);
    auto* labels = arena.At<int32_t>(buffers.Labels(set, index), count);
    auto* positions =
        buffers.options().packed
            ? arena.At<int32_t>(buffers.Positions(set, index), count)
            : nullptr;
    for (size_t row = 0; row < data.rows.size(); ++row) {
      const uint64_t start = row * data.row_tokens;
      dataset.FillRow(data.rows[row], data.row_tokens, tokens + start,
                      labels + start,
                      positions == nullptr ? nullptr : positions + start);
    }
  }
}

}  // namespace roundhouse
