#include "worker/slot/slot_computation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/kill_point.h"
#include "base/status.h"
#include "worker/board/unit_weights.h"
#include "worker/device/named_range.h"

namespace roundhouse::worker {
namespace {

Keep KeepOf(const wire::RunSlot& command) {
  if (!SlotPlan::HasBackward(command.kind)) return Keep::kNothing;
  return command.recompute == wire::Recompute::kLayer ? Keep::kLayer
                                                      : Keep::kStage;
}

WaitPlace::For PlaceOf(UploadName::Kind kind) {
  switch (kind) {
    case UploadName::Kind::kInput:
      return WaitPlace::For::kInput;
    case UploadName::Kind::kGradient:
      return WaitPlace::For::kGradient;
    case UploadName::Kind::kWeights:
      break;
  }
  return WaitPlace::For::kWeights;
}

StageRunOptions OptionsOf(const wire::RunSlot& command, const JobTables& tables,
                          const wire::SlotMicroBatch& micro_batch,
                          const NativeStream& stream) {
  StageRunOptions options;
  options.config = tables.config;
  options.adapter = tables.adapter;
  options.dtype = tables.dtype;
  options.rows = micro_batch.rows;
  options.row_tokens = micro_batch.row_tokens;
  options.keep = KeepOf(command);
  options.head_token_chunk = tables.head_token_chunk;
  options.train = command.mode == wire::StepMode::kTrain;
  options.seed = tables.seed;
  options.step = command.step;
  options.micro_batch = micro_batch.step_index;
  options.stream = stream;
  return options;
}

}  // namespace

SlotComputation::SlotComputation(const ComputeContext& context, Slot& slot)
    : context_(context),
      turn_(context.turn),
      slot_(slot),
      command_(slot.command),
      tables_(*slot.tables),
      sums_(command_, slot.plan, tables_, context.stream, *this),
      clock_(context.stream, command_.first_layer,
             slot.plan.layer_units.size()) {}

absl::Status SlotComputation::Run() {
  absl::Status status = RunMicroBatches();
  // Whatever became of it: what is queued still uses the slot's memory.  An
  // error of the model may be one of the device.
  absl::Status drained = Drain(context_.stream);
  turn_.GiveBack();
  return drained.ok() ? status : drained;
}

absl::Status SlotComputation::RunMicroBatches() {
  RETURN_IF_ERROR(Start());
  for (size_t m = 0; m < command_.micro_batches.size(); ++m) {
    RETURN_IF_ERROR(CheckWanted());
    const NamedRange range(
        SlotKindName(command_.kind), command_.first_layer, command_.last_layer,
        static_cast<int32_t>(command_.micro_batches[m].index));
    turn_.SetMicroBatch(slot_, m);
    RETURN_IF_ERROR(RunMicroBatch(m));
    turn_.GiveBack();
    if (!turn_.backfill()) SendMicroBatchDone(m);
    KillPoint("slot.micro_batch.done");
  }
  FillTimes();
  return absl::OkStatus();
}

void SlotComputation::SendMicroBatchDone(size_t m) {
  context_.outbox.Send(
      slot_.attempt,
      wire::MicroBatchDone{.slot = command_.slot,
                           .index = command_.micro_batches[m].index,
                           .last = m + 1 == command_.micro_batches.size(),
                           .time_ns = MonotonicNs(),
                           .waits = std::exchange(waits_, {})});
}

absl::Status SlotComputation::Start() {
  RETURN_IF_ERROR(CheckWanted());
  RETURN_IF_ERROR(clock_.Now().status());  // a lost device starts nothing
  int64_t waited_ns = 0;                   // before the slot began
  turn_.SetMicroBatch(slot_, 0);
  turn_.WaitFor(WaitPlace::For::kInput, 0);
  ASSIGN_OR_RETURN(
      const SlotBoard::Arrived input,
      context_.board.AwaitUpload(slot_, {UploadName::Kind::kInput, 0}, turn_,
                                 &waited_ns));
  record_.started_ns = MonotonicNs();
  if (!turn_.backfill()) SplitFirstWait(input);
  context_.outbox.Send(slot_.attempt,
                       wire::SlotStarted{.slot = command_.slot,
                                         .received_ns = slot_.received_ns,
                                         .time_ns = record_.started_ns,
                                         .fills_bubble = context_.fills_bubble,
                                         .backfill = turn_.backfill(),
                                         .waits = std::exchange(waits_, {})});
  KillPoint("slot.started");
  return absl::OkStatus();
}

// Stage 0 reads what the host gathered from the embedding.
wire::WaitCause SlotComputation::InputCause() const {
  return command_.first_layer == 0 ? wire::WaitCause::kData
                                   : wire::WaitCause::kDependency;
}

void SlotComputation::SplitFirstWait(const SlotBoard::Arrived& input) {
  waits_ = {};
  SplitWait(context_.idle_since_ns, record_.started_ns,
            {{command_.enabled_ns, command_.enabled_by},
             {slot_.received_ns, wire::WaitCause::kDispatch},
             {context_.board.GatherBegunNs(slot_), wire::WaitCause::kOptimizer},
             {input.published_ns, InputCause()},
             {input.granted_ns, wire::WaitCause::kMemory},
             {input.there_ns, wire::WaitCause::kH2D}},
            waits_);
}

absl::Status SlotComputation::CheckWanted() {
  if (context_.board.GivenUp(slot_)) {
    return absl::CancelledError("the slot was given up");
  }
  return absl::OkStatus();
}

absl::StatusOr<ComputeClock::Mark> SlotComputation::BeginLayer(
    uint32_t layer, PassDirection direction) {
  RETURN_IF_ERROR(turn_.BeginLayer(layer, direction, clock_));
  return clock_.Now();
}

absl::StatusOr<DeviceBuffer*> SlotComputation::AwaitUpload(
    const UploadName& name, wire::WaitCause late) {
  int64_t waited_ns = 0;
  ASSIGN_OR_RETURN(ComputeClock::Mark queued, clock_.Now());
  turn_.WaitFor(PlaceOf(name.kind), name.index);
  ASSIGN_OR_RETURN(const SlotBoard::Arrived upload,
                   context_.board.AwaitUpload(slot_, name, turn_, &waited_ns));
  if (waited_ns > 0) {
    const int64_t now_ns = MonotonicNs();
    clock_.NoteWait(std::move(queued), now_ns - waited_ns, now_ns,
                    {{upload.published_ns, late},
                     {upload.granted_ns, wire::WaitCause::kMemory},
                     {upload.there_ns, wire::WaitCause::kH2D}});
  }
  return upload.buffer;
}

absl::StatusOr<LayerWeights> SlotComputation::AwaitWeights(uint32_t layer) {
  RETURN_IF_ERROR(CheckWanted());
  LayerWeights weights;
  for (uint32_t u : slot_.plan.layer_units[layer - command_.first_layer]) {
    ASSIGN_OR_RETURN(DeviceBuffer* const buffer,
                     AwaitUpload({UploadName::Kind::kWeights, u},
                                 wire::WaitCause::kOptimizer));
    AddUnitWeights(tables_, command_.units[u].unit, layer, buffer->data(),
                   &weights);
  }
  return weights;
}

absl::StatusOr<SlotBoard::Taken> SlotComputation::AwaitBuffer(
    const PoolName& pool) {
  int64_t waited_ns = 0;
  ASSIGN_OR_RETURN(ComputeClock::Mark queued, clock_.Now());
  turn_.WaitFor(WaitPlace::For::kBuffer, pool.unit);
  ASSIGN_OR_RETURN(const SlotBoard::Taken taken,
                   context_.board.AwaitBuffer(slot_, pool, turn_, &waited_ns));
  if (waited_ns > 0) {
    const int64_t now_ns = MonotonicNs();
    clock_.NoteWait(
        std::move(queued), now_ns - waited_ns, now_ns,
        {{now_ns, taken.awaited_download ? wire::WaitCause::kD2H
                                         : wire::WaitCause::kMemory}});
  }
  return taken;
}

absl::Status SlotComputation::RunMicroBatch(size_t m) {
  RETURN_IF_ERROR(clock_.BeginMicroBatch());
  {
    ASSIGN_OR_RETURN(DeviceBuffer* const input,
                     AwaitUpload({UploadName::Kind::kInput, m}, InputCause()));
    ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> run,
                     context_.make_run(OptionsOf(command_, tables_,
                                                 command_.micro_batches[m],
                                                 context_.stream.native())));
    RETURN_IF_ERROR(run->SetInput(input->data()));
    RETURN_IF_ERROR(SetPositions(*run, m));
    RETURN_IF_ERROR(Emit(m, command_.first_layer, wire::OutputKind::kActivation,
                         [&](std::byte* output) {
                           return context_.stream.CopyOnDevice(
                               output, input->data(),
                               command_.micro_batches[m].input.bytes);
                         }));
    RETURN_IF_ERROR(Forward(*run, m));
    if (FaultPoint("slot.fault")) {
      RETURN_IF_ERROR(context_.stream.BreakDevice());
    }
    if (FaultPoint("slot.exhausted")) {
      return absl::ResourceExhaustedError("device memory is in pieces");
    }
    if (SlotPlan::HasHead(command_.kind)) RETURN_IF_ERROR(RunHead(*run, m));
    if (SlotPlan::HasBackward(command_.kind)) {
      RETURN_IF_ERROR(Backward(*run, m));
    }
    // Times of a slot's first micro-batch have its page faults and first calls.
    const bool counts = m > 0 || command_.micro_batches.size() == 1;
    ASSIGN_OR_RETURN(const int64_t waited_ns,
                     clock_.EndMicroBatch(counts, waits_));
    record_.waited_ns += waited_ns;
  }
  context_.board.ReleaseUploads(slot_, m);
  return absl::OkStatus();
}

absl::Status SlotComputation::SetPositions(StageRun& run, size_t m) {
  const wire::BufferRef& positions = command_.micro_batches[m].positions;
  if (positions.bytes == 0) return absl::OkStatus();
  return run.SetPositions(
      reinterpret_cast<const int32_t*>(context_.arena.Bytes(positions)));
}

absl::Status SlotComputation::Forward(StageRun& run, size_t m) {
  const uint32_t head = static_cast<uint32_t>(tables_.head_layer());
  for (uint32_t layer = command_.first_layer;
       layer <= command_.last_layer && layer < head; ++layer) {
    ASSIGN_OR_RETURN(const LayerWeights weights, AwaitWeights(layer));
    ASSIGN_OR_RETURN(ComputeClock::Mark began,
                     BeginLayer(layer, PassDirection::kForward));
    RETURN_IF_ERROR(ForwardLayer(run, m, layer, weights));
    RETURN_IF_ERROR(
        clock_.EndLayer(layer, PassDirection::kForward, std::move(began)));
    RETURN_IF_ERROR(
        Emit(m, layer + 1, wire::OutputKind::kActivation,
             [&](std::byte* output) { return run.CopyOutput(output); }));
    RETURN_IF_ERROR(turn_.EndLayer());
  }
  return absl::OkStatus();
}

// With the picks of experts that are there, or leaving them.  This thread
// writes them and raises their word: a slot that was given up may, too, since
// no other attempt begins before it has ended, and that one goes by them.
absl::Status SlotComputation::ForwardLayer(StageRun& run, size_t m,
                                           uint32_t layer,
                                           const LayerWeights& weights) {
  const auto picks =
      slot_.plan.PicksOf(command_.micro_batches[m],
                         static_cast<int>(layer - command_.first_layer));
  if (!picks.has_value()) return run.ForwardLayer(layer, weights);
  auto* const there =
      reinterpret_cast<ExpertPick*>(context_.arena.Bytes(picks->buffer));
  wire::Word& word = context_.arena.WordAt(picks->word.offset);
  if (wire::Reached(word, picks->word.value)) {
    RETURN_IF_ERROR(run.SetPicks(there));
    return run.ForwardLayer(layer, weights);
  }
  if (command_.pick_use == wire::PickUse::kRead) {
    return absl::InternalError(absl::StrCat(
        "the picks of layer ", layer, " are not there, but its input is"));
  }
  RETURN_IF_ERROR(run.ForwardLayer(layer, weights));
  RETURN_IF_ERROR(run.CopyPicks(there));
  CountLoads(command_.micro_batches[m], *picks);
  KillPoint("slot.picks.written");
  wire::Raise(word, picks->word.value, context_.arena.doorbells());
  KillPoint("slot.picks.raised");
  return absl::OkStatus();
}

// Counts by the picks that were just written.
void SlotComputation::CountLoads(const wire::SlotMicroBatch& micro_batch,
                                 const LayerPicks& picks) {
  if (picks.loads_offset == 0) return;
  const uint64_t tokens = uint64_t{micro_batch.rows} * micro_batch.row_tokens;
  const auto each =
      static_cast<uint64_t>(tables_.config.mixture.experts_per_token);
  const uint64_t experts = slot_.plan.expert_count;
  const wire::Arena& arena = context_.arena;
  const auto* const ids = arena.At<int32_t>(micro_batch.tokens_offset, tokens);
  const auto* pick = arena.At<ExpertPick>(picks.buffer.offset, tokens * each);
  auto* const loads = arena.At<ExpertLoad>(picks.loads_offset, experts);
  std::fill_n(loads, experts, ExpertLoad{0});
  for (uint64_t token = 0; token < tokens; ++token, pick += each) {
    if (ids[token] < 0) continue;
    for (uint64_t i = 0; i < each; ++i) ++loads[pick[i]];
  }
}

absl::Status SlotComputation::RunHead(StageRun& run, size_t m) {
  const uint32_t layer = command_.last_layer;
  const bool backward = SlotPlan::HasBackward(command_.kind);
  ASSIGN_OR_RETURN(const LayerWeights weights, AwaitWeights(layer));
  sums_.BeginMicroBatch(m);
  const PassDirection direction =
      backward ? PassDirection::kBackward : PassDirection::kForward;
  ASSIGN_OR_RETURN(ComputeClock::Mark began, BeginLayer(layer, direction));
  ASSIGN_OR_RETURN(
      const HeadResult result,
      run.Head(weights,
               reinterpret_cast<const int32_t*>(
                   context_.arena.Bytes(command_.micro_batches[m].labels)),
               backward ? HeadMode::kLossAndGradient : HeadMode::kLossOnly,
               command_.loss_scale, &sums_));
  RETURN_IF_ERROR(clock_.EndLayer(layer, direction, std::move(began)));
  record_.results.push_back(
      {.loss_sum = result.loss_sum,
       .target_tokens = static_cast<uint64_t>(result.target_tokens),
       .finite = result.finite ? wire::Finite::kYes : wire::Finite::kNo});
  if (backward) RETURN_IF_ERROR(sums_.FinishLayer(layer));
  return turn_.EndLayer();
}

absl::Status SlotComputation::Backward(StageRun& run, size_t m) {
  sums_.BeginMicroBatch(m);
  if (command_.kind == SlotKind::kBackward) {
    ASSIGN_OR_RETURN(DeviceBuffer* const gradient,
                     AwaitUpload({UploadName::Kind::kGradient, m},
                                 wire::WaitCause::kDependency));
    RETURN_IF_ERROR(run.BackwardFrom(gradient->data()));
  }
  const int64_t head = tables_.head_layer();
  int64_t layer = command_.last_layer;
  for (layer = layer == head ? layer - 1 : layer;
       layer >= int64_t{command_.first_layer}; --layer) {
    RETURN_IF_ERROR(CheckWanted());
    const auto number = static_cast<uint32_t>(layer);
    ASSIGN_OR_RETURN(ComputeClock::Mark began,
                     BeginLayer(number, PassDirection::kBackward));
    RETURN_IF_ERROR(run.BackwardLayer(layer, &sums_));
    RETURN_IF_ERROR(
        clock_.EndLayer(number, PassDirection::kBackward, std::move(began)));
    RETURN_IF_ERROR(sums_.FinishLayer(layer));
    RETURN_IF_ERROR(turn_.EndLayer());
  }
  return Emit(m, command_.first_layer, wire::OutputKind::kGradient,
              [&](std::byte* output) { return run.CopyInputGradient(output); });
}

absl::Status SlotComputation::Emit(size_t m, uint32_t boundary,
                                   wire::OutputKind kind, const Fill& fill) {
  for (uint32_t o : slot_.plan.micro_batches[m].outputs) {
    const wire::SlotOutput& output = command_.outputs[o];
    if (output.boundary != boundary || output.kind != kind) {
      continue;
    }
    RETURN_IF_ERROR(EmitOutput(o, fill));
  }
  return absl::OkStatus();
}

absl::Status SlotComputation::EmitOutput(uint32_t o, const Fill& fill) {
  const wire::SlotOutput& output = command_.outputs[o];
  // A replay: what is behind a raised word is never written again.
  if (output.raise.offset != 0 &&
      wire::Reached(context_.arena.WordAt(output.raise.offset),
                    output.raise.value)) {
    context_.board.SettleReplayedOutput(slot_, o);
    return absl::OkStatus();
  }
  const PoolName pool{PoolName::Kind::kOutputs};
  ASSIGN_OR_RETURN(const SlotBoard::Taken taken, AwaitBuffer(pool));
  RETURN_IF_ERROR(fill(taken.buffer->data()));
  return Send(
      {.pool = pool,
       .buffer = taken.buffer,
       .part = {CopiedPart::Kind::kOutput, o},
       .to = output.buffer,
       .priority = PriorityOf(output),
       .purpose = wire::Purpose::kActivations,
       .place = {output.boundary,
                 static_cast<int32_t>(
                     command_.micro_batches[output.micro_batch].index)}});
}

CopyPriority SlotComputation::PriorityOf(const wire::SlotOutput& output) const {
  const bool last = output.micro_batch + 1 == command_.micro_batches.size();
  return last && output.kind == wire::OutputKind::kGradient &&
                 output.boundary == 0
             ? CopyPriority::kBulk
             : CopyPriority::kActivation;
}

absl::Status SlotComputation::Send(Download download) {
  RETURN_IF_ERROR(CheckWanted());
  ASSIGN_OR_RETURN(download.after, context_.stream.Record());
  return QueueDownload(context_.board, context_.downloads, context_.arena,
                       slot_, std::move(download));
}

absl::StatusOr<DeviceBuffer*> SlotComputation::TakeSum(size_t unit) {
  ASSIGN_OR_RETURN(const SlotBoard::Taken taken,
                   AwaitBuffer({PoolName::Kind::kSums, unit}));
  DeviceBuffer* const sum = taken.buffer;
  if (taken.fresh) {
    RETURN_IF_ERROR(context_.stream.ZeroFloats(
        reinterpret_cast<float*>(sum->data()),
        static_cast<int64_t>(sum->bytes() / sizeof(float))));
  }
  return sum;
}

void SlotComputation::GiveSum(size_t unit, DeviceBuffer* sum) {
  context_.board.GiveBuffer(slot_, {PoolName::Kind::kSums, unit}, sum);
}

// Work that comes after on the stream may write the sum as soon as it was
// rounded.
absl::Status SlotComputation::SendSum(size_t unit, uint32_t contribution,
                                      DeviceBuffer* sum) {
  const PoolName pool = PoolName::Down(slot_, unit);
  DeviceBuffer* down = sum;
  if (pool.kind == PoolName::Kind::kRounded) {
    ASSIGN_OR_RETURN(const SlotBoard::Taken taken, AwaitBuffer(pool));
    down = taken.buffer;
    RETURN_IF_ERROR(context_.stream.RoundFloats(
        down->data(), reinterpret_cast<const float*>(sum->data()),
        static_cast<int64_t>(sum->bytes() / sizeof(float)),
        command_.contribution_dtype));
    GiveSum(unit, sum);
  }
  if (command_.sums == wire::SumPlace::kDevice)
    return HoldSum(unit, contribution, down);
  return Send({.pool = pool,
               .buffer = down,
               .part = {CopiedPart::Kind::kSum, unit},
               .to = command_.contributions[contribution].buffer,
               .place = {.layer = command_.units[unit].layer}});
}

absl::Status SlotComputation::HoldSum(size_t unit, uint32_t contribution,
                                      DeviceBuffer* sum) {
  ASSIGN_OR_RETURN(std::unique_ptr<Event> complete, context_.stream.Record());
  const bool all = context_.board.HoldSum(
      slot_, unit, {contribution, sum, std::move(complete)});
  if (all) {
    context_.outbox.Send(slot_.attempt,
                         wire::SumsHeld{.slot = command_.slot,
                                        .units = {command_.units[unit].unit}});
    KillPoint("slot.sums.held");
  }
  return absl::OkStatus();
}

void SlotComputation::FillTimes() {
  record_.ended_ns = MonotonicNs();
  const size_t all = command_.micro_batches.size();
  record_.layers =
      clock_.LayerTimes(static_cast<uint32_t>(all > 1 ? all - 1 : 1));
}

}  // namespace roundhouse::worker
