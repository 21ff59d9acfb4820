#include "worker/board/slot_plan.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/model/parameters.h"
#include "base/model/working_memory.h"
#include "base/reduction.h"
#include "base/status.h"
#include "worker/board/arena_refs.h"

namespace roundhouse::worker {
namespace {

// Checks a command and fills a plan in, field by field.
class Planner {
 public:
  Planner(const wire::RunSlot& slot, const JobTables& tables,
          uint64_t arena_bytes)
      : slot_(slot), tables_(tables), arena_bytes_(arena_bytes) {}

  absl::StatusOr<SlotPlan> Plan() {
    RETURN_IF_ERROR(CheckLayers());
    RETURN_IF_ERROR(CheckTrain());
    RETURN_IF_ERROR(PlanUnits());
    RETURN_IF_ERROR(Named(CheckLayerUnits(
        tables_, slot_.units, slot_.first_layer, plan_.layer_units)));
    PlanPicks();
    RETURN_IF_ERROR(PlanMicroBatches());
    RETURN_IF_ERROR(PlanOutputs());
    RETURN_IF_ERROR(PlanContributions());
    return std::move(plan_);
  }

 private:
  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", slot_.slot, ": ", args...));
  }
  absl::Status Named(const absl::Status& status) const {
    return status.ok() ? status : Bad(std::string(status.message()));
  }

  absl::Status CheckBuffer(const wire::BufferRef& buffer, uint64_t want,
                           const std::string& name) const {
    return Named(worker::CheckBuffer(arena_bytes_, buffer, want, name));
  }
  absl::Status CheckWord(const wire::WordRef& word,
                         const std::string& name) const {
    return Named(worker::CheckWord(arena_bytes_, word, name));
  }
  absl::Status CheckLayers() const;
  absl::Status CheckTrain() const;
  absl::Status PlanUnits();
  void PlanPicks();
  absl::Status CheckPicks(const wire::SlotMicroBatch& given,
                          const std::string& name) const;
  absl::Status PlanMicroBatches();
  absl::Status PlanMicroBatch(size_t m);
  absl::Status PlanOutputs();
  absl::Status CheckOutput(const wire::SlotOutput& output,
                           const std::string& name) const;
  absl::Status PlanContributions();
  absl::Status PlanUnitContributions(size_t u);
  void PlanSums(uint32_t largest, uint32_t number, PlannedUnit& unit) const;

  uint64_t ActivationBytes(const wire::SlotMicroBatch& micro_batch) const {
    return uint64_t{micro_batch.rows} * micro_batch.row_tokens *
           static_cast<uint64_t>(tables_.config.hidden_size) *
           DTypeBytes(tables_.dtype);
  }
  uint64_t ContributionBytes(uint32_t unit) const {
    return tables_.units[unit].element_count *
           DTypeBytes(slot_.contribution_dtype);
  }
  // Buffers that hold this micro-batch's and the next one's.
  BufferNeed Pair(uint64_t bytes) const {
    return {bytes,
            bytes == 0 ? 0 : std::min<uint64_t>(2, slot_.micro_batches.size())};
  }

  const wire::RunSlot& slot_;
  const JobTables& tables_;
  const uint64_t arena_bytes_;
  SlotPlan plan_;
};

absl::Status Planner::CheckLayers() const {
  const int64_t head = tables_.head_layer();
  if (slot_.first_layer > slot_.last_layer || slot_.last_layer > head) {
    return Bad("layers ", slot_.first_layer, "..", slot_.last_layer,
               " of a model whose head is layer ", head);
  }
  if ((slot_.last_layer == head) != SlotPlan::HasHead(slot_.kind)) {
    return Bad("kind ", static_cast<uint32_t>(slot_.kind),
               " cannot end at layer ", slot_.last_layer, ", the head is ",
               head);
  }
  if (slot_.micro_batches.empty()) return Bad("micro_batches is empty");
  return absl::OkStatus();
}

absl::Status Planner::CheckTrain() const {
  const bool fits = slot_.mode == wire::StepMode::kTrain
                        ? slot_.kind != SlotKind::kEvaluate
                        : !SlotPlan::HasBackward(slot_.kind);
  if (fits) return absl::OkStatus();
  return Bad("mode is ", static_cast<uint32_t>(slot_.mode),
             " in a slot of kind ", static_cast<uint32_t>(slot_.kind));
}

absl::Status Planner::PlanUnits() {
  plan_.layer_units.resize(slot_.last_layer - slot_.first_layer + 1);
  for (size_t u = 0; u < slot_.units.size(); ++u) {
    const wire::SlotUnit& unit = slot_.units[u];
    const std::string name = absl::StrCat("units[", u, "]");
    if (unit.unit >= tables_.units.size() || unit.layer < slot_.first_layer ||
        unit.layer > slot_.last_layer) {
      return Bad(name, " is unit ", unit.unit, " of layer ", unit.layer);
    }
    PlannedUnit planned;
    planned.weight_bytes = tables_.units[unit.unit].element_count *
                           tables_.element_bytes(unit.unit);
    RETURN_IF_ERROR(
        CheckBuffer(unit.weights, planned.weight_bytes, name + ".weights"));
    RETURN_IF_ERROR(CheckWord(unit.version, name + ".version"));
    plan_.weight_bytes += DeviceBytes(planned.weight_bytes);
    plan_.layer_units[unit.layer - slot_.first_layer].push_back(
        static_cast<uint32_t>(u));
    plan_.units.push_back(std::move(planned));
  }
  return absl::OkStatus();
}

void Planner::PlanPicks() {
  if (slot_.pick_use == wire::PickUse::kNone) return;
  int experts = 0;  // layers with them
  for (int64_t layer = 0; layer < tables_.head_layer(); ++layer) {
    const bool has = tables_.config.HasExperts(layer);
    if (layer >= slot_.first_layer && layer <= slot_.last_layer) {
      plan_.expert_layers.push_back(has ? experts : -1);
    }
    experts += has ? 1 : 0;
  }
  plan_.expert_layer_count = static_cast<uint64_t>(experts);
  plan_.expert_count =
      static_cast<uint64_t>(tables_.config.mixture.expert_count);
}

absl::Status Planner::CheckPicks(const wire::SlotMicroBatch& given,
                                 const std::string& name) const {
  const uint64_t layers = plan_.expert_layer_count;
  if (layers == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckBuffer(given.picks,
                  PickBytes(layers, uint64_t{given.rows} * given.row_tokens,
                            tables_.config.mixture.experts_per_token),
                  name + ".picks"));
  if (given.picked.offset == 0) return Bad(name, ".picked has no word");
  // They stand side by side: those between the first and the last are right.
  for (const uint64_t layer : {uint64_t{0}, layers - 1}) {
    RETURN_IF_ERROR(CheckWord(
        {given.picked.offset + layer * sizeof(wire::Word), given.picked.value},
        name + ".picked"));
  }
  if (given.loads_offset == 0) return absl::OkStatus();
  const uint64_t load_bytes = LoadBytes(
      layers, static_cast<uint64_t>(tables_.config.mixture.expert_count));
  RETURN_IF_ERROR(CheckBuffer({given.loads_offset, load_bytes}, load_bytes,
                              name + ".loads_offset"));
  const uint64_t token_bytes =
      uint64_t{given.rows} * given.row_tokens * sizeof(int32_t);
  return CheckBuffer({given.tokens_offset, token_bytes}, token_bytes,
                     name + ".tokens_offset");
}

absl::Status Planner::PlanMicroBatch(size_t m) {
  const wire::SlotMicroBatch& given = slot_.micro_batches[m];
  const std::string name = absl::StrCat("micro_batches[", m, "]");
  if (given.rows == 0 || given.row_tokens == 0) {
    return Bad(name, " has ", given.rows, " rows of ", given.row_tokens,
               " tokens");
  }
  const uint64_t bytes = ActivationBytes(given);
  RETURN_IF_ERROR(CheckBuffer(given.input, bytes, name + ".input"));
  RETURN_IF_ERROR(CheckWord(given.input_ready, name + ".input_ready"));
  RETURN_IF_ERROR(CheckPicks(given, name));
  plan_.inputs.bytes = std::max(plan_.inputs.bytes, bytes);
  if (slot_.kind == SlotKind::kBackward) {
    RETURN_IF_ERROR(CheckBuffer(given.gradient, bytes, name + ".gradient"));
    RETURN_IF_ERROR(CheckWord(given.gradient_ready, name + ".gradient_ready"));
    plan_.gradients.bytes = std::max(plan_.gradients.bytes, bytes);
  }
  const uint64_t token_bytes =
      uint64_t{given.rows} * given.row_tokens * sizeof(int32_t);
  if (SlotPlan::HasHead(slot_.kind)) {
    RETURN_IF_ERROR(CheckBuffer(given.labels, token_bytes, name + ".labels"));
  }
  if (given.positions.bytes > 0) {
    RETURN_IF_ERROR(
        CheckBuffer(given.positions, token_bytes, name + ".positions"));
  }
  return absl::OkStatus();
}

absl::Status Planner::PlanMicroBatches() {
  const auto& given = slot_.micro_batches;
  plan_.micro_batches.resize(given.size());
  for (size_t m = 0; m < given.size(); ++m) {
    RETURN_IF_ERROR(PlanMicroBatch(m));
    PlannedMicroBatch& planned = plan_.micro_batches[m];
    planned.first_of_group = m == 0 || given[m - 1].group != given[m].group;
    planned.last_of_group =
        m + 1 == given.size() || given[m + 1].group != given[m].group;
    if (m > 0 && given[m].group != given[m - 1].group &&
        given[m].group != given[m - 1].group + 1) {
      return Bad("micro_batches[", m, "] is of group ", given[m].group,
                 ", after one of group ", given[m - 1].group);
    }
  }
  plan_.inputs = Pair(plan_.inputs.bytes);
  plan_.gradients = Pair(plan_.gradients.bytes);
  return absl::OkStatus();
}

absl::Status Planner::CheckOutput(const wire::SlotOutput& output,
                                  const std::string& name) const {
  if (output.micro_batch >= slot_.micro_batches.size()) {
    return Bad(name, " is of micro-batch ", output.micro_batch, " of ",
               slot_.micro_batches.size());
  }
  const int64_t last_boundary =
      std::min<int64_t>(tables_.head_layer(), int64_t{slot_.last_layer} + 1);
  const bool gradient = output.kind == wire::OutputKind::kGradient;
  const bool fits = gradient ? SlotPlan::HasBackward(slot_.kind) &&
                                   output.boundary == slot_.first_layer
                             : output.boundary >= slot_.first_layer &&
                                   output.boundary <= last_boundary;
  if (!fits) {
    return Bad(name, gradient ? " is the gradient" : "", " at boundary ",
               output.boundary, ", which layers ", slot_.first_layer, "..",
               slot_.last_layer, " do not produce");
  }
  RETURN_IF_ERROR(CheckBuffer(
      output.buffer, ActivationBytes(slot_.micro_batches[output.micro_batch]),
      name + ".buffer"));
  return CheckWord(output.raise, name + ".raise");
}

absl::Status Planner::PlanOutputs() {
  uint64_t most = 0;
  for (size_t o = 0; o < slot_.outputs.size(); ++o) {
    const wire::SlotOutput& output = slot_.outputs[o];
    RETURN_IF_ERROR(CheckOutput(output, absl::StrCat("outputs[", o, "]")));
    auto& indices = plan_.micro_batches[output.micro_batch].outputs;
    indices.push_back(static_cast<uint32_t>(o));
    most = std::max<uint64_t>(most, indices.size());
    plan_.outputs.bytes = std::max(plan_.outputs.bytes, output.buffer.bytes);
  }
  plan_.outputs.count = Pair(plan_.outputs.bytes).count * most;
  return absl::OkStatus();
}

absl::Status Planner::PlanContributions() {
  if (!slot_.contributions.empty() && !SlotPlan::HasBackward(slot_.kind)) {
    return Bad("contributions of a slot without backward");
  }
  if (slot_.contribution_dtype != DType::kF32 &&
      slot_.contribution_dtype != tables_.dtype) {
    return Bad("contribution_dtype is ", DTypeName(slot_.contribution_dtype),
               ", neither fp32 nor the job's ", DTypeName(tables_.dtype));
  }
  for (size_t c = 0; c < slot_.contributions.size(); ++c) {
    const wire::SlotContribution& given = slot_.contributions[c];
    const auto unit = std::find_if(
        slot_.units.begin(), slot_.units.end(),
        [&](const wire::SlotUnit& one) { return one.unit == given.unit; });
    const std::string name = absl::StrCat("contributions[", c, "]");
    if (unit == slot_.units.end()) {
      return Bad(name, " is of unit ", given.unit,
                 ", which is none of the slot's");
    }
    if (!tables_.trainable(given.unit)) {
      return Bad(name, " is of unit ", given.unit, ", which is frozen");
    }
    RETURN_IF_ERROR(CheckBuffer(given.buffer, ContributionBytes(given.unit),
                                name + ".buffer"));
    plan_.units[static_cast<size_t>(unit - slot_.units.begin())]
        .contributions.push_back(static_cast<uint32_t>(c));
  }
  for (size_t u = 0; u < plan_.units.size(); ++u) {
    RETURN_IF_ERROR(PlanUnitContributions(u));
  }
  return absl::OkStatus();
}

absl::Status Planner::PlanUnitContributions(size_t u) {
  PlannedUnit& unit = plan_.units[u];
  if (unit.contributions.empty()) return absl::OkStatus();
  const auto& all = slot_.contributions;
  std::sort(unit.contributions.begin(), unit.contributions.end(),
            [&](uint32_t a, uint32_t b) {
              return all[a].first_group < all[b].first_group;
            });
  uint32_t next = slot_.micro_batches.front().group;
  const uint32_t end = slot_.micro_batches.back().group + 1;
  uint32_t largest = 0;
  for (uint32_t c : unit.contributions) {
    const uint32_t first = all[c].first_group;
    const uint32_t count = all[c].group_count;
    if (first != next || count == 0 || count > end - first ||
        first + count > slot_.total_groups ||
        LargestSubtrees(slot_.total_groups, {first, first + count}).size() !=
            1) {
      return Bad("contributions[", c, "] of groups ", first, "+", count,
                 ": expected a subtree of ", slot_.total_groups,
                 " groups from ", next, ", ending by ", end);
    }
    largest = std::max(largest, count);
    next = first + count;
  }
  if (next != end) {
    return Bad("contributions of unit ", slot_.units[u].unit, " end at group ",
               next, ", the slot's at ", end);
  }
  PlanSums(largest, slot_.units[u].unit, unit);
  return absl::OkStatus();
}

// The fold holds at most one sum per size of subtree; one more, or a rounded
// copy, lets the next subtree begin while the last one downloads.  Those that
// are held stay until the last one is there.
void Planner::PlanSums(uint32_t largest, uint32_t number,
                       PlannedUnit& unit) const {
  const uint64_t sent = unit.contributions.size();
  const uint64_t down = slot_.sums == wire::SumPlace::kDevice
                            ? sent
                            : std::min<uint64_t>(sent, 2);
  unit.sums = {tables_.units[number].element_count * sizeof(float),
               static_cast<uint64_t>(std::bit_width(largest))};
  if (slot_.contribution_dtype == DType::kF32) {
    unit.sums.count += down - 1;
  } else {
    unit.rounded = {ContributionBytes(number), down};
  }
}

uint64_t WorkingOf(const wire::RunSlot& slot, const JobTables& tables) {
  WorkingShape shape;
  shape.dtype = tables.dtype;
  shape.backward = SlotPlan::HasBackward(slot.kind);
  shape.layer_recompute = slot.recompute == wire::Recompute::kLayer;
  shape.head_token_chunk = tables.head_token_chunk;
  uint64_t most = 0;
  for (const wire::SlotMicroBatch& given : slot.micro_batches) {
    shape.batch.sequences = given.rows;
    shape.batch.tokens = given.row_tokens;
    shape.packed = given.positions.bytes > 0;
    most = std::max(most, WorkingBytes(tables.config, tables.adapter, shape,
                                       slot.first_layer, slot.last_layer));
  }
  return most;
}

}  // namespace

uint64_t BufferNeed::total_bytes() const { return DeviceBytes(bytes) * count; }

uint64_t SlotPlan::draining_bytes() const {
  uint64_t bytes = outputs.total_bytes();
  for (const PlannedUnit& unit : units) bytes += unit.down().total_bytes();
  return bytes;
}

uint64_t SlotPlan::device_bytes() const {
  uint64_t bytes = outputs.total_bytes() + weight_bytes + inputs.total_bytes() +
                   gradients.total_bytes();
  for (const PlannedUnit& unit : units) {
    bytes += unit.sums.total_bytes() + unit.rounded.total_bytes();
  }
  return bytes;
}

std::optional<LayerPicks> SlotPlan::PicksOf(
    const wire::SlotMicroBatch& micro_batch, int layer_of_slot) const {
  const auto at = static_cast<size_t>(layer_of_slot);
  if (at >= expert_layers.size() || expert_layers[at] < 0) return std::nullopt;
  const auto layer = static_cast<uint64_t>(expert_layers[at]);
  const uint64_t bytes = micro_batch.picks.bytes / expert_layer_count;
  const uint64_t loads = micro_batch.loads_offset;
  return LayerPicks{{micro_batch.picks.offset + layer * bytes, bytes},
                    {micro_batch.picked.offset + layer * sizeof(wire::Word),
                     micro_batch.picked.value},
                    loads == 0 ? 0 : loads + LoadBytes(layer, expert_count)};
}

bool SlotPlan::HasHead(SlotKind kind) {
  return kind == SlotKind::kFused || kind == SlotKind::kEvaluate;
}

bool SlotPlan::HasBackward(SlotKind kind) {
  return kind == SlotKind::kFused || kind == SlotKind::kBackward;
}

absl::StatusOr<SlotPlan> PlanSlot(const wire::RunSlot& slot,
                                  const JobTables& tables, uint64_t arena_bytes,
                                  const DeviceMemory& memory) {
  ASSIGN_OR_RETURN(SlotPlan plan, Planner(slot, tables, arena_bytes).Plan());
  if (memory.with_libraries) plan.working_bytes = WorkingOf(slot, tables);
  const uint64_t bytes = plan.device_bytes() + plan.working_bytes;
  if (bytes > memory.limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "device memory: slot ", slot.slot, " of layers ", slot.first_layer,
        "..", slot.last_layer, " needs ", bytes, " bytes (", plan.weight_bytes,
        " of them weights, ", plan.working_bytes,
        " to compute with), the limit is ", memory.limit_bytes));
  }
  return plan;
}

}  // namespace roundhouse::worker
