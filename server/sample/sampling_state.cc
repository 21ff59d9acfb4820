#include "server/sample/sampling_state.h"

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/wire/model_dims.h"
#include "base/wire/words.h"
#include "server/weights/unit_layout.h"

namespace roundhouse {
namespace {

// No computation of a sample reads it; the table must have one.
constexpr uint32_t kHeadTokenChunk = 1024;

}  // namespace

std::vector<wire::SlotUnit> SampleUnits(
    const ModelConfig& model, const AdapterConfig& adapter,
    const std::function<wire::BufferRef(int unit)>& weights,
    const std::function<wire::WordRef(int unit)>& version) {
  std::vector<wire::SlotUnit> units;
  const auto add = [&](int unit, int layer) {
    units.push_back({static_cast<uint32_t>(unit), static_cast<uint32_t>(layer),
                     weights(unit), version(unit)});
  };
  const int layers = static_cast<int>(model.layer_count);
  if (!model.tie_word_embeddings) add(0, 0);
  for (int layer = 0; layer <= layers; ++layer) {
    for (int unit : TrainingUnitsOfLayer(model, adapter, layer)) {
      add(unit, layer);
    }
  }
  return units;
}

// Places every unit: run once to count the bytes and once for good.
uint64_t SamplingState::Place(uint64_t offset) {
  parameters_.clear();
  layouts_.assign(units_.size(), {});
  LayoutCursor cursor(offset);
  cursor.Take(sizeof(wire::JobLayout));
  for (size_t i = 0; i < units_.size(); ++i) {
    const int unit = static_cast<int>(i);
    wire::UnitLayout& layout = layouts_[i];
    AddParameterLayouts(units_[i], static_cast<uint32_t>(i), parameters_,
                        layout);
    const DType dtype = UnitDType(options_.model, options_.dtype, unit);
    layout.dtype = dtype;
    if (i < model_units()) {
      layout.compute_offset = base_->unit(unit).compute_offset;
      layout.version_word_offset = base_->unit(unit).version_word_offset;
      continue;
    }
    layout.version_word_offset = cursor.Take(sizeof(wire::Word));
    layout.compute_offset =
        cursor.Take(layout.element_count * DTypeBytes(dtype));
  }
  job_layout_.units_offset =
      cursor.Take(layouts_.size() * sizeof(wire::UnitLayout));
  job_layout_.parameters_offset =
      cursor.Take(parameters_.size() * sizeof(wire::ParameterLayout));
  return cursor.bytes();
}

absl::StatusOr<std::unique_ptr<SamplingState>> SamplingState::Create(
    HostArena& arena, const SamplingStateOptions& options,
    std::shared_ptr<BaseWeights> base) {
  std::unique_ptr<SamplingState> state(
      new SamplingState(arena, options, std::move(base)));
  state->units_ = TrainingUnits(options.model, options.adapter);
  ASSIGN_OR_RETURN(state->range_, ArenaRange::Allocate(arena, state->Place(0)));
  state->Place(state->range_.offset());
  wire::JobLayout& job = state->job_layout_;
  job.job = options.job;
  job.model = wire::DimsOf(options.model);
  job.adapter = wire::DimsOf(options.adapter);
  job.dtype = options.dtype;
  job.head_token_chunk = kHeadTokenChunk;
  WriteJobTables(arena.arena(), state->range_.offset(), state->layouts_,
                 state->parameters_, job);
  return state;
}

std::vector<wire::SlotUnit> SamplingState::units() const {
  return SampleUnits(
      options_.model, options_.adapter,
      [this](int unit) -> wire::BufferRef {
        const wire::UnitLayout& layout = layouts_[unit];
        return {layout.compute_offset,
                layout.element_count * DTypeBytes(layout.dtype)};
      },
      [this](int unit) -> wire::WordRef {
        return {layouts_[unit].version_word_offset, kBaseVersion};
      });
}

std::vector<FilePart> SamplingState::Parts(
    const std::vector<std::vector<ParameterSource>>& sources,
    size_t first_unit) const {
  std::vector<UnitSpec> units;
  std::vector<LoadTarget> targets;
  for (size_t i = first_unit; i < first_unit + sources.size(); ++i) {
    const wire::UnitLayout& layout = layouts_[i];
    units.push_back(units_[i]);
    targets.push_back({layout.compute_offset, layout.dtype, 0});
  }
  return LoadParts(sources, units, targets);
}

std::vector<FilePart> SamplingState::BaseParts(
    const std::vector<std::vector<ParameterSource>>& sources) const {
  return Parts(sources, 0);
}

std::vector<FilePart> SamplingState::AdapterParts(
    const std::vector<std::vector<ParameterSource>>& sources) const {
  return Parts(sources, model_units());
}

void SamplingState::PublishAdapters() {
  ROUNDHOUSE_CHECK(options_.adapter.present());
  for (size_t i = model_units(); i < layouts_.size(); ++i) {
    wire::Raise(arena_.arena().WordAt(layouts_[i].version_word_offset),
                kBaseVersion, arena_.arena().doorbells());
  }
}

}  // namespace roundhouse
