#include "server/weights/training_state.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/wire/model_dims.h"
#include "server/weights/unit_layout.h"

namespace roundhouse {
namespace {

constexpr uint64_t kLedgerEntries = 4096;
constexpr uint64_t kFp32Bytes = 4;

struct Placement {
  wire::JobLayout job = {};
  std::vector<wire::UnitLayout> units;
  std::vector<uint64_t> second_offsets;  // of compute weights
  std::vector<wire::ParameterLayout> parameters;
  uint64_t bytes = 0;
};

void PlaceTrained(bool keeps_sum, LayoutCursor& cursor,
                  wire::UnitLayout& layout) {
  const uint64_t fp32 = layout.element_count * kFp32Bytes;
  const auto dtype = layout.dtype;
  layout.compute_offset = cursor.Take(layout.element_count * DTypeBytes(dtype));
  layout.master_offset = cursor.Take(fp32);
  layout.exp_avg_offset = cursor.Take(fp32);
  layout.exp_avg_sq_offset = cursor.Take(fp32);
  if (keeps_sum) layout.grad_sum_offset = cursor.Take(fp32);
  layout.version_word_offset = cursor.Take(sizeof(wire::Word));
  layout.journal_offset = cursor.Take(layout.chunk_count * sizeof(uint64_t));
  layout.norm_partials_offset =
      cursor.Take(layout.chunk_count * sizeof(double));
}

// `base` may be null: nothing but the bytes of the rest is wanted.
void PlaceUnit(const TrainingStateOptions& options, const BaseWeights* base,
               int unit, LayoutCursor& cursor, Placement& placement) {
  wire::UnitLayout& layout = placement.units[unit];
  layout.dtype = UnitDType(options.model, options.dtype, unit);
  if (IsTrainable(options.model, options.adapter, unit)) {
    PlaceTrained(!options.one_pass || unit == 0, cursor, layout);
    if (options.stale) {
      placement.second_offsets[unit] =
          cursor.Take(layout.element_count * DTypeBytes(layout.dtype));
    }
    return;
  }
  if (base == nullptr) return;
  layout.compute_offset = base->unit(unit).compute_offset;
  layout.version_word_offset = base->unit(unit).version_word_offset;
}

Placement Place(const TrainingStateOptions& options, const BaseWeights* base,
                uint64_t offset) {
  const std::vector<UnitSpec> units =
      TrainingUnits(options.model, options.adapter);
  Placement placement;
  placement.units.resize(units.size());
  placement.second_offsets.resize(units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    AddParameterLayouts(units[i], static_cast<uint32_t>(i),
                        placement.parameters, placement.units[i]);
  }
  LayoutCursor cursor(offset);
  cursor.Take(sizeof(wire::JobLayout));
  wire::JobLayout& job = placement.job;
  job.units_offset = cursor.Take(units.size() * sizeof(wire::UnitLayout));
  job.parameters_offset =
      cursor.Take(placement.parameters.size() * sizeof(wire::ParameterLayout));
  job.ledger_entries = kLedgerEntries;
  job.ledger_offset = cursor.Take(kLedgerEntries * sizeof(uint64_t));
  // A chunk's new state: master and both moments, the compute copy; a
  // reduction's sum and norm partial are smaller.
  job.scratch_slot_bytes = wire::kChunkElements * 16 + 64;
  job.scratch_slot_count = static_cast<uint32_t>(options.scratch_slots);
  job.scratch_offset =
      cursor.Take(job.scratch_slot_bytes * job.scratch_slot_count);
  for (size_t i = 0; i < units.size(); ++i) {
    PlaceUnit(options, base, static_cast<int>(i), cursor, placement);
  }
  placement.bytes = cursor.bytes();
  return placement;
}

}  // namespace

uint64_t TrainingStateBytes(const TrainingStateOptions& options) {
  return Place(options, nullptr, 0).bytes;
}

absl::StatusOr<std::unique_ptr<TrainingState>> TrainingState::Create(
    HostArena& arena, const TrainingStateOptions& options,
    std::shared_ptr<BaseWeights> base) {
  ROUNDHOUSE_CHECK(options.adapter.present() == (base != nullptr));
  auto state = std::unique_ptr<TrainingState>(
      new TrainingState(arena, options, std::move(base)));
  ASSIGN_OR_RETURN(state->range_,
                   ArenaRange::Allocate(arena, TrainingStateBytes(options)));
  Placement placement =
      Place(options, state->base_.get(), state->range_.offset());
  wire::JobLayout& job = placement.job;
  job.job = options.job;
  job.model = wire::DimsOf(options.model);
  job.adapter = wire::DimsOf(options.adapter);
  job.dtype = options.dtype;
  job.head_token_chunk = static_cast<uint32_t>(options.head_token_chunk);
  job.seed = options.seed;
  WriteJobTables(arena.arena(), state->range_.offset(), placement.units,
                 placement.parameters, job);
  state->units_ = std::make_shared<const std::vector<UnitSpec>>(
      TrainingUnits(options.model, options.adapter));
  state->layouts_ = std::move(placement.units);
  state->second_offsets_ = std::move(placement.second_offsets);
  state->job_layout_ = job;
  return state;
}

wire::BufferRef TrainingState::Weights(int unit, int64_t update) const {
  const bool second = second_offsets_[unit] != 0 && update % 2 != 0;
  return {second ? second_offsets_[unit] : layouts_[unit].compute_offset,
          layouts_[unit].element_count * DTypeBytes(dtype(unit))};
}

void TrainingState::CommitToLedger(uint64_t slot) {
  auto* ledger = arena_.arena().At<std::atomic<uint64_t>>(
      job_layout_.ledger_offset, job_layout_.ledger_entries);
  ledger[slot % job_layout_.ledger_entries].store(slot,
                                                  std::memory_order_seq_cst);
}

}  // namespace roundhouse
