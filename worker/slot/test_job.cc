#include "worker/slot/test_job.h"

#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "base/log.h"
#include "base/wire/model_dims.h"

namespace roundhouse::worker {
namespace {

constexpr uint64_t kSeedStep = 0x9e3779b97f4a7c15u;

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t NextRandom(uint64_t& state) {
  state += kSeedStep;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float RandomFloat(uint64_t& state, float spread) {
  const double unit = static_cast<double>(NextRandom(state) >> 11) * 0x1p-53;
  return static_cast<float>(2 * unit - 1) * spread;
}

}  // namespace

ModelConfig SmallConfig(int64_t layers, bool tied) {
  ModelConfig config;
  config.hidden_size = 24;
  config.layer_count = layers;
  config.head_count = 4;
  config.kv_head_count = 2;
  config.head_dim = 8;
  config.intermediate_size = 40;
  config.vocab_size = 37;
  config.max_position_tokens = 64;
  config.tie_word_embeddings = tied;
  return config;
}

ModelConfig ConfigOf(const RoundShape& shape) {
  ModelConfig config = SmallConfig(4, shape.tied);
  if (!shape.experts) return config;
  config.architecture = Architecture::kQwen3Moe;
  config.mixture = {.expert_count = 5,
                    .experts_per_token = 2,
                    .expert_size = 16,
                    .renormalize = true,
                    .layers = LayersFrom(0, 4)};
  config.mixture.layers.reset(1);
  return config;
}

SlotTestJob::SlotTestJob(const ModelConfig& config, const RoundShape& shape,
                         uint64_t seed)
    : config_(config),
      shape_(shape),
      units_(TrainingUnits(config, shape.adapter)),
      arena_(*wire::Arena::Create(kArenaBytes, 8)),
      next_((sizeof(wire::ArenaHeader) + 63) / 64 * 64),
      seed_(seed) {
  // As for GPUs, in small pieces: buffers lie across their ends.
  arena_->header().piece_bytes = 3 * 4096;
  arena_->header().kept_bytes = arena_->size_bytes();
  LayOut();
  for (int m = 0; m < shape_.micro_batches; ++m) MakeMicroBatch();
}

void SlotTestJob::MakeMicroBatch() {
  const auto vocabulary = static_cast<uint64_t>(config_.vocab_size);
  const uint64_t row_bytes =
      static_cast<uint64_t>(config_.hidden_size) * DTypeBytes(shape_.dtype);
  const std::byte* const embedding = arena_->At<std::byte>(
      arena_->At<wire::UnitLayout>(units_offset_)->compute_offset);
  inputs_.push_back(Allocate(activation_bytes()));
  std::byte* const input = arena_->Bytes(inputs_.back());
  labels_.push_back(Allocate(kRows * kRowTokens * sizeof(int32_t)));
  positions_.push_back(shape_.packed ? MakePositions() : wire::BufferRef());
  int32_t* const labels =
      arena_->At<int32_t>(labels_.back().offset, kRows * kRowTokens);
  std::vector<int32_t>& tokens = tokens_.emplace_back();
  for (uint32_t i = 0; i < kRows * kRowTokens; ++i) {
    const uint64_t token = NextRandom(seed_) % vocabulary;
    tokens.push_back(static_cast<int32_t>(token));
    std::memcpy(input + i * row_bytes, embedding + token * row_bytes,
                row_bytes);
    labels[i] = i % 5 == 4
                    ? -100
                    : static_cast<int32_t>(NextRandom(seed_) % vocabulary);
    if (labels[i] >= 0) ++targets_;
  }
}

wire::BufferRef SlotTestJob::MakePositions() {
  const wire::BufferRef buffer = Allocate(kRows * kRowTokens * sizeof(int32_t));
  int32_t* const positions =
      arena_->At<int32_t>(buffer.offset, kRows * kRowTokens);
  for (uint32_t row = 0; row < kRows; ++row) {
    const auto first = static_cast<uint32_t>(1 + NextRandom(seed_) % 4);
    for (uint32_t t = 0; t < kRowTokens; ++t) {
      positions[row * kRowTokens + t] =
          static_cast<int32_t>(t < first ? t : t - first);
    }
  }
  return buffer;
}

const int32_t* SlotTestJob::positions(size_t micro_batch) const {
  const wire::BufferRef& buffer = positions_[micro_batch];
  if (buffer.bytes == 0) return nullptr;
  return arena_->At<int32_t>(buffer.offset, kRows * kRowTokens);
}

wire::BufferRef SlotTestJob::Allocate(uint64_t bytes) {
  const wire::BufferRef buffer = {next_, bytes};
  next_ += DeviceBytes(bytes);
  ROUNDHOUSE_CHECK(next_ <= arena_->size_bytes()) << "test arena too small";
  return buffer;
}

std::string SlotTestJob::Bytes(const wire::BufferRef& buffer) const {
  return std::string(reinterpret_cast<const char*>(arena_->Bytes(buffer)),
                     buffer.bytes);
}

uint64_t SlotTestJob::WordValue(const wire::WordRef& word) const {
  return arena_->WordAt(word.offset).value.load();
}

uint64_t SlotTestJob::activation_bytes() const {
  return kRows * kRowTokens * static_cast<uint64_t>(config_.hidden_size) *
         DTypeBytes(shape_.dtype);
}

void SlotTestJob::LayOut() {
  uint32_t parameter_count = 0;
  for (const UnitSpec& unit : units_) {
    parameter_count += static_cast<uint32_t>(unit.parameters.size());
  }
  layout_offset_ = Allocate(sizeof(wire::JobLayout)).offset;
  units_offset_ = Allocate(units_.size() * sizeof(wire::UnitLayout)).offset;
  parameters_offset_ =
      Allocate(parameter_count * sizeof(wire::ParameterLayout)).offset;
  wire::JobLayout& layout = *arena_->At<wire::JobLayout>(layout_offset_);
  layout.magic = wire::kLayoutMagic;
  layout.version = wire::kWireVersion;
  layout.job = kJob;
  layout.model = wire::DimsOf(config_);
  layout.adapter = wire::DimsOf(shape_.adapter);
  layout.seed = kJobSeed;
  layout.dtype = shape_.dtype;
  layout.head_token_chunk = 1024;
  layout.unit_count = static_cast<uint32_t>(units_.size());
  layout.parameter_count = parameter_count;
  layout.units_offset = units_offset_;
  layout.parameters_offset = parameters_offset_;
  uint32_t next_parameter = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    LayOutUnit(u, next_parameter);
    next_parameter += static_cast<uint32_t>(units_[u].parameters.size());
  }
}

void SlotTestJob::LayOutUnit(size_t u, uint32_t first_parameter) {
  const UnitSpec& spec = units_[u];
  const auto elements = static_cast<uint64_t>(spec.element_count);
  wire::UnitLayout& unit =
      arena_->At<wire::UnitLayout>(units_offset_, units_.size())[u];
  unit.first_parameter = first_parameter;
  unit.parameter_count = static_cast<uint32_t>(spec.parameters.size());
  unit.element_count = elements;
  unit.dtype = DTypeOf(u);
  unit.compute_offset = Allocate(elements * DTypeBytes(DTypeOf(u))).offset;
  unit.version_word_offset = Allocate(sizeof(wire::Word)).offset;
  std::vector<float> master(elements, 0.0f);
  for (size_t p = 0; p < spec.parameters.size(); ++p) {
    const ParameterSpec& parameter = spec.parameters[p];
    *arena_->At<wire::ParameterLayout>(parameters_offset_ +
                                       (first_parameter + p) *
                                           sizeof(wire::ParameterLayout)) = {
        .unit = static_cast<uint32_t>(u),
        .role = static_cast<uint32_t>(parameter.role),
        .unit_offset_elements =
            static_cast<uint64_t>(parameter.unit_offset_elements),
        .element_count = static_cast<uint64_t>(parameter.element_count)};
    const float center = parameter.shape.size() == 1 ? 1.0f : 0.0f;
    for (int64_t i = 0; i < parameter.element_count; ++i) {
      master[static_cast<size_t>(parameter.unit_offset_elements + i)] =
          center + RandomFloat(seed_, 0.3f);
    }
  }
  FromF32(DTypeOf(u), master.data(), arena_->At<std::byte>(unit.compute_offset),
          elements);
  masters_.push_back(std::move(master));
}

SlotTestJob::Cell SlotTestJob::NewCell(uint64_t pass) {
  return {Allocate(activation_bytes()),
          {Allocate(sizeof(wire::Word)).offset, pass}};
}

SlotTestJob::Cell SlotTestJob::NewPicks(uint64_t pass) {
  const MixtureConfig& mixture = config_.mixture;
  const uint64_t layers = mixture.layers.count();
  const auto each = static_cast<uint64_t>(mixture.experts_per_token);
  return {Allocate(layers * kRows * kRowTokens * each * sizeof(ExpertPick)),
          {Allocate(layers * sizeof(wire::Word)).offset, pass}};
}

void SlotTestJob::FillPicks(int64_t shift) {
  const MixtureConfig& mixture = config_.mixture;
  const int64_t each = mixture.experts_per_token;
  for (const Cell& cell : picks_) {
    const auto count =
        static_cast<int64_t>(cell.buffer.bytes / sizeof(ExpertPick));
    auto* const picks = arena_->At<ExpertPick>(cell.buffer.offset,
                                               static_cast<uint64_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first =
          (i / each + shift) % (mixture.expert_count - each + 1);
      picks[i] = static_cast<ExpertPick>(first + i % each);
    }
  }
}

void SlotTestJob::RaisePicks(uint64_t value) {
  for (const Cell& cell : picks_) {
    for (size_t layer = 0; layer < config_.mixture.layers.count(); ++layer) {
      wire::Raise(arena_->WordAt(cell.word.offset + layer * sizeof(wire::Word)),
                  value, arena_->doorbells());
    }
  }
}

bool SlotTestJob::StartsBackwardStage(uint32_t boundary) const {
  return std::any_of(
      shape_.backward.begin(), shape_.backward.end(),
      [&](const Stage& stage) { return stage.first == boundary; });
}

std::vector<wire::RunSlot> SlotTestJob::MakeRound(uint64_t pass,
                                                  uint64_t first_slot) {
  activations_.clear();
  gradients_.clear();
  picks_.clear();
  for (size_t m = 0; m < inputs_.size(); ++m) {
    if (config_.mixture.present()) picks_.push_back(NewPicks(pass));
    activations_[{0, m}] = {inputs_[m],
                            {Allocate(sizeof(wire::Word)).offset, pass}};
    for (const Stage& stage : shape_.forward) {
      for (uint32_t b = stage.first + 1; b <= stage.last + 1; ++b) {
        if (b == stage.last + 1 || StartsBackwardStage(b)) {
          activations_[{b, m}] = NewCell(pass);
        }
      }
    }
    for (const Stage& stage : shape_.backward) {
      // Nobody reads the gradient of a frozen embedding.
      if (stage.first == 0 && !trainable(0)) continue;
      gradients_[{stage.first, m}] = NewCell(pass);
    }
  }
  std::vector<wire::RunSlot> slots;
  for (const Stage& stage : shape_.forward) {
    slots.push_back(ForwardSlot(stage, pass));
  }
  for (size_t i = 0; i < shape_.backward.size(); ++i) {
    slots.push_back(BackwardSlot(shape_.backward[i], i == 0, pass));
  }
  for (wire::RunSlot& slot : slots) slot.slot = first_slot++;
  return slots;
}

wire::SlotUnit SlotTestJob::UnitOf(uint32_t unit, uint32_t layer) const {
  const auto& layout =
      arena_->At<wire::UnitLayout>(units_offset_, units_.size())[unit];
  return {.unit = unit,
          .layer = layer,
          .weights = {layout.compute_offset,
                      layout.element_count * DTypeBytes(DTypeOf(unit))},
          .version = {layout.version_word_offset, 1}};
}

std::vector<wire::SlotUnit> SlotTestJob::UnitsOf(uint32_t layer) const {
  std::vector<wire::SlotUnit> units;
  for (int unit : TrainingUnitsOfLayer(config_, shape_.adapter, layer)) {
    units.push_back(UnitOf(static_cast<uint32_t>(unit), layer));
  }
  return units;
}

wire::RunSample SlotTestJob::MakeSample(
    uint64_t sample, const std::vector<std::vector<int32_t>>& sequences,
    uint32_t new_tokens, uint32_t prompt_tokens) {
  wire::RunSample command{
      .job = kJob, .sample = sample, .new_tokens = new_tokens};
  command.units = {UnitOf(0, 0)};
  for (uint32_t layer = 0; layer <= config_.layer_count; ++layer) {
    for (const wire::SlotUnit& unit : UnitsOf(layer)) {
      command.units.push_back(unit);
    }
  }
  for (const std::vector<int32_t>& tokens : sequences) {
    const wire::BufferRef buffer = Allocate(tokens.size() * sizeof(int32_t));
    std::memcpy(arena_->Bytes(buffer), tokens.data(), buffer.bytes);
    command.sequences.push_back(
        {.number = static_cast<uint32_t>(command.sequences.size()),
         .prompt_tokens = prompt_tokens != 0
                              ? prompt_tokens
                              : static_cast<uint32_t>(tokens.size()),
         .tokens = buffer});
  }
  return command;
}

wire::RunSlot SlotTestJob::NewSlot(SlotKind kind, const Stage& stage,
                                   uint64_t pass) {
  wire::RunSlot slot;
  slot.job = kJob;
  slot.pass = pass;
  slot.step = kStep;
  slot.mode = wire::StepMode::kTrain;
  slot.kind = kind;
  slot.recompute = shape_.recompute;
  slot.first_layer = stage.first;
  slot.last_layer = stage.last;
  slot.total_groups = static_cast<uint32_t>(shape_.groups);
  slot.contribution_dtype = shape_.contribution_dtype;
  slot.loss_scale = loss_scale();
  if (!picks_.empty()) {
    slot.pick_use = kind == SlotKind::kBackward ? wire::PickUse::kRead
                                                : wire::PickUse::kWrite;
  }
  for (uint32_t layer = stage.first; layer <= stage.last; ++layer) {
    for (const wire::SlotUnit& unit : UnitsOf(layer)) {
      slot.units.push_back(unit);
    }
  }
  const auto groups = GroupRanges(shape_.micro_batches, shape_.groups);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int64_t m = groups[g].begin; m < groups[g].end; ++m) {
      const Cell& input = activations_.at({stage.first, m});
      slot.micro_batches.push_back(
          {.index = static_cast<uint32_t>(m),
           .group = static_cast<uint32_t>(g),
           .rows = kRows,
           .row_tokens = kRowTokens,
           .step_index = static_cast<uint32_t>(m),
           .positions = positions_[static_cast<size_t>(m)],
           .input = input.buffer,
           .input_ready = input.word});
      if (slot.pick_use == wire::PickUse::kNone) continue;
      const Cell& picks = picks_[static_cast<size_t>(m)];
      slot.micro_batches.back().picks = picks.buffer;
      slot.micro_batches.back().picked = picks.word;
    }
  }
  return slot;
}

wire::RunSlot SlotTestJob::ForwardSlot(const Stage& stage, uint64_t pass) {
  wire::RunSlot slot = NewSlot(SlotKind::kForward, stage, pass);
  for (uint32_t m = 0; m < inputs_.size(); ++m) {
    for (uint32_t b = stage.first + 1; b <= stage.last + 1; ++b) {
      const auto cell = activations_.find({b, m});
      if (cell == activations_.end()) continue;
      slot.outputs.push_back({.micro_batch = m,
                              .boundary = b,
                              .buffer = cell->second.buffer,
                              .raise = cell->second.word});
    }
  }
  return slot;
}

wire::RunSlot SlotTestJob::BackwardSlot(const Stage& stage, bool fused,
                                        uint64_t pass) {
  wire::RunSlot slot =
      NewSlot(fused ? SlotKind::kFused : SlotKind::kBackward, stage, pass);
  for (uint32_t m = 0; m < inputs_.size(); ++m) {
    wire::SlotMicroBatch& micro_batch = slot.micro_batches[m];
    if (fused) {
      micro_batch.labels = labels_[m];
    } else {
      const Cell& gradient = gradients_.at({stage.last + 1, m});
      micro_batch.gradient = gradient.buffer;
      micro_batch.gradient_ready = gradient.word;
    }
    const auto output = gradients_.find({stage.first, m});
    if (output == gradients_.end()) continue;
    slot.outputs.push_back({.micro_batch = m,
                            .boundary = stage.first,
                            .kind = wire::OutputKind::kGradient,
                            .buffer = output->second.buffer,
                            .raise = output->second.word});
  }
  AddContributions(&slot);
  return slot;
}

void SlotTestJob::AddContributions(wire::RunSlot* slot) {
  const int64_t all = shape_.groups;
  for (const wire::SlotUnit& unit : slot->units) {
    if (!trainable(static_cast<int>(unit.unit))) continue;
    const uint64_t bytes =
        static_cast<uint64_t>(units_[unit.unit].element_count) *
        DTypeBytes(shape_.contribution_dtype);
    for (int64_t first = 0; first < all; first += shape_.largest_subtree) {
      const int64_t end =
          std::min<int64_t>(all, first + shape_.largest_subtree);
      for (const IndexRange& tree : LargestSubtrees(all, {first, end})) {
        slot->contributions.push_back(
            {.unit = unit.unit,
             .first_group = static_cast<uint32_t>(tree.begin),
             .group_count = static_cast<uint32_t>(tree.size()),
             .buffer = Allocate(bytes)});
      }
    }
  }
}

void SlotTestJob::RaiseInput(size_t micro_batch) {
  const Cell& cell = activations_.at({0, micro_batch});
  wire::Raise(arena_->WordAt(cell.word.offset), cell.word.value,
              arena_->doorbells());
}

void SlotTestJob::RaiseInputs() {
  for (size_t m = 0; m < inputs_.size(); ++m) RaiseInput(m);
}

void SlotTestJob::RaiseVersions() {
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto& unit =
        arena_->At<wire::UnitLayout>(units_offset_, units_.size())[u];
    wire::Raise(arena_->WordAt(unit.version_word_offset), 1,
                arena_->doorbells());
  }
}

LayerWeights SlotTestJob::Weights(int64_t layer) const {
  LayerWeights weights;
  for (int u : TrainingUnitsOfLayer(config_, shape_.adapter, layer)) {
    const auto& unit = arena_->At<wire::UnitLayout>(
        units_offset_, units_.size())[static_cast<size_t>(u)];
    for (const ParameterSpec& spec :
         units_[static_cast<size_t>(u)].parameters) {
      const ParamRole role =
          spec.role == ParamRole::kEmbedding ? ParamRole::kLmHead : spec.role;
      weights.weight[static_cast<int>(role)] = arena_->At<std::byte>(
          unit.compute_offset +
          static_cast<uint64_t>(spec.unit_offset_elements) *
              DTypeBytes(DTypeOf(static_cast<size_t>(u))));
    }
  }
  return weights;
}

}  // namespace roundhouse::worker
