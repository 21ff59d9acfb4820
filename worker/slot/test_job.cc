#include "worker/slot/test_job.h"

#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "base/log.h"
#include "gtest/gtest.h"

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

// Adds each gradient it gets to the unit's place for it.
class UnitGradients : public GradientSink {
 public:
  UnitGradients(const ModelConfig& config, const std::vector<UnitSpec>& units)
      : config_(config), units_(units) {
    for (const UnitSpec& unit : units) {
      sums.emplace_back(static_cast<size_t>(unit.element_count), 0.0f);
    }
  }

  void OnGradient(int64_t layer, ParamRole role, const float* fp32,
                  int64_t element_count) override {
    for (int u : UnitsOfLayer(config_, layer)) {
      for (const ParameterSpec& spec :
           units_[static_cast<size_t>(u)].parameters) {
        const bool tied =
            spec.role == ParamRole::kEmbedding && role == ParamRole::kLmHead;
        if (spec.role != role && !tied) continue;
        ASSERT_EQ(spec.element_count, element_count);
        std::copy(
            fp32, fp32 + element_count,
            sums[static_cast<size_t>(u)].begin() + spec.unit_offset_elements);
      }
    }
  }

  std::vector<std::vector<float>> sums;

 private:
  const ModelConfig& config_;
  const std::vector<UnitSpec>& units_;
};

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

SlotTestJob::SlotTestJob(const ModelConfig& config, const RoundShape& shape,
                         uint64_t seed)
    : config_(config),
      shape_(shape),
      units_(ModelUnits(config)),
      arena_(*wire::Arena::Create(kArenaBytes, 8)),
      next_((sizeof(wire::ArenaHeader) + 63) / 64 * 64),
      seed_(seed) {
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
  layout.model = {.architecture = static_cast<uint32_t>(config_.architecture),
                  .tie_word_embeddings = config_.tie_word_embeddings ? 1u : 0u,
                  .hidden_size = config_.hidden_size,
                  .layer_count = config_.layer_count,
                  .head_count = config_.head_count,
                  .kv_head_count = config_.kv_head_count,
                  .head_dim = config_.head_dim,
                  .intermediate_size = config_.intermediate_size,
                  .vocab_size = config_.vocab_size,
                  .max_position_tokens = config_.max_position_tokens,
                  .rope_theta = config_.rope_theta,
                  .rms_norm_eps = config_.rms_norm_eps};
  layout.dtype = static_cast<uint32_t>(shape_.dtype);
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
  unit.compute_offset = Allocate(elements * DTypeBytes(shape_.dtype)).offset;
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
  FromF32(shape_.dtype, master.data(),
          arena_->At<std::byte>(unit.compute_offset), elements);
  masters_.push_back(std::move(master));
}

SlotTestJob::Cell SlotTestJob::NewCell(uint64_t pass) {
  return {Allocate(activation_bytes()),
          {Allocate(sizeof(wire::Word)).offset, pass}};
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
  for (size_t m = 0; m < inputs_.size(); ++m) {
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

wire::RunSlot SlotTestJob::NewSlot(wire::SlotKind kind, const Stage& stage,
                                   uint64_t pass) {
  wire::RunSlot slot;
  slot.job = kJob;
  slot.pass = pass;
  slot.kind = kind;
  slot.recompute = shape_.recompute;
  slot.first_layer = stage.first;
  slot.last_layer = stage.last;
  slot.total_groups = static_cast<uint32_t>(shape_.groups);
  slot.loss_scale = loss_scale();
  for (uint32_t layer = stage.first; layer <= stage.last; ++layer) {
    for (int unit : UnitsOfLayer(config_, layer)) {
      const auto& layout = arena_->At<wire::UnitLayout>(
          units_offset_, units_.size())[static_cast<size_t>(unit)];
      slot.units.push_back(
          {.unit = static_cast<uint32_t>(unit),
           .layer = layer,
           .weights = {layout.compute_offset,
                       layout.element_count * DTypeBytes(shape_.dtype)},
           .version = {layout.version_word_offset, 1}});
    }
  }
  const auto groups = GroupRanges(shape_.micro_batches, shape_.groups);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int64_t m = groups[g].begin; m < groups[g].end; ++m) {
      const Cell& input = activations_.at({stage.first, m});
      slot.micro_batches.push_back({.index = static_cast<uint32_t>(m),
                                    .group = static_cast<uint32_t>(g),
                                    .rows = kRows,
                                    .row_tokens = kRowTokens,
                                    .input = input.buffer,
                                    .input_ready = input.word});
    }
  }
  return slot;
}

wire::RunSlot SlotTestJob::ForwardSlot(const Stage& stage, uint64_t pass) {
  wire::RunSlot slot = NewSlot(wire::SlotKind::kForward, stage, pass);
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
  wire::RunSlot slot = NewSlot(
      fused ? wire::SlotKind::kFused : wire::SlotKind::kBackward, stage, pass);
  for (uint32_t m = 0; m < inputs_.size(); ++m) {
    wire::SlotMicroBatch& micro_batch = slot.micro_batches[m];
    if (fused) {
      micro_batch.labels = labels_[m];
    } else {
      const Cell& gradient = gradients_.at({stage.last + 1, m});
      micro_batch.gradient = gradient.buffer;
      micro_batch.gradient_ready = gradient.word;
    }
    const Cell& output = gradients_.at({stage.first, m});
    slot.outputs.push_back({.micro_batch = m,
                            .boundary = stage.first,
                            .is_gradient = 1,
                            .buffer = output.buffer,
                            .raise = output.word});
  }
  AddContributions(&slot);
  return slot;
}

void SlotTestJob::AddContributions(wire::RunSlot* slot) {
  const int64_t all = shape_.groups;
  for (const wire::SlotUnit& unit : slot->units) {
    const uint64_t bytes =
        static_cast<uint64_t>(units_[unit.unit].element_count) * sizeof(float);
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
  for (int u : UnitsOfLayer(config_, layer)) {
    const auto& unit = arena_->At<wire::UnitLayout>(
        units_offset_, units_.size())[static_cast<size_t>(u)];
    for (const ParameterSpec& spec :
         units_[static_cast<size_t>(u)].parameters) {
      const ParamRole role =
          spec.role == ParamRole::kEmbedding ? ParamRole::kLmHead : spec.role;
      weights.weight[static_cast<int>(role)] = arena_->At<std::byte>(
          unit.compute_offset +
          static_cast<uint64_t>(spec.unit_offset_elements) *
              DTypeBytes(shape_.dtype));
    }
  }
  return weights;
}

SlotTestJob::Reference SlotTestJob::ComputeReference(
    const StageRunFactory& make_run) const {
  Reference reference;
  const int64_t head = config_.layer_count;
  for (size_t m = 0; m < inputs_.size(); ++m) {
    UnitGradients sink(config_, units_);
    auto run = *make_run({.config = config_,
                          .dtype = shape_.dtype,
                          .rows = kRows,
                          .row_tokens = kRowTokens,
                          .keep = Keep::kStage});
    const wire::BufferRef copy = {0, activation_bytes()};
    std::string bytes(copy.bytes, '\0');
    EXPECT_TRUE(run->SetInput(arena_->Bytes(inputs_[m])).ok());
    for (int64_t layer = 0; layer < head; ++layer) {
      EXPECT_TRUE(run->ForwardLayer(layer, Weights(layer)).ok());
      EXPECT_TRUE(run->CopyOutput(bytes.data()).ok());
      reference.activations[{static_cast<uint32_t>(layer + 1), m}] = bytes;
    }
    reference.results.push_back(
        *run->Head(Weights(head),
                   arena_->At<int32_t>(labels_[m].offset, kRows * kRowTokens),
                   HeadMode::kLossAndGradient, loss_scale(), &sink));
    for (int64_t layer = head - 1; layer >= 0; --layer) {
      EXPECT_TRUE(run->BackwardLayer(layer, &sink).ok());
    }
    EXPECT_TRUE(run->CopyInputGradient(bytes.data()).ok());
    reference.input_gradients[m] = bytes;
    reference.gradients.push_back(std::move(sink.sums));
  }
  return reference;
}

std::vector<float> SlotTestJob::GroupSum(const Reference& reference,
                                         uint32_t unit, int64_t group) const {
  const IndexRange range = GroupRanges(
      shape_.micro_batches, shape_.groups)[static_cast<size_t>(group)];
  std::vector<float> sum =
      reference.gradients[static_cast<size_t>(range.begin)][unit];
  for (int64_t m = range.begin + 1; m < range.end; ++m) {
    const auto& addend = reference.gradients[static_cast<size_t>(m)][unit];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
  }
  return sum;
}

std::vector<float> SlotTestJob::TreeSum(const Reference& reference,
                                        uint32_t unit,
                                        IndexRange groups) const {
  if (groups.size() == 1) return GroupSum(reference, unit, groups.begin);
  int64_t split = 1;
  while (split * 2 < groups.size()) split *= 2;
  std::vector<float> sum =
      TreeSum(reference, unit, {groups.begin, groups.begin + split});
  const std::vector<float> right =
      TreeSum(reference, unit, {groups.begin + split, groups.end});
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

std::string SlotTestJob::ExpectedSum(const Reference& reference, uint32_t unit,
                                     IndexRange groups) const {
  const std::vector<float> sum = TreeSum(reference, unit, groups);
  return std::string(reinterpret_cast<const char*>(sum.data()),
                     sum.size() * sizeof(float));
}

void SlotTestJob::CheckRound(const std::vector<wire::RunSlot>& slots,
                             const std::map<uint64_t, wire::SlotDone>& done,
                             const Reference& reference) const {
  for (const wire::RunSlot& slot : slots) {
    SCOPED_TRACE("slot " + std::to_string(slot.slot));
    for (const wire::SlotOutput& output : slot.outputs) {
      EXPECT_EQ(WordValue(output.raise), output.raise.value);
      const auto at =
          std::make_pair(output.boundary, size_t{output.micro_batch});
      if (output.is_gradient == 0) {
        EXPECT_TRUE(Bytes(output.buffer) == reference.activations.at(at))
            << "boundary " << output.boundary << " micro-batch "
            << output.micro_batch;
      } else if (output.boundary == 0) {
        EXPECT_TRUE(Bytes(output.buffer) ==
                    reference.input_gradients.at(at.second))
            << "micro-batch " << output.micro_batch;
      }
    }
    for (const wire::SlotContribution& given : slot.contributions) {
      EXPECT_TRUE(Bytes(given.buffer) ==
                  ExpectedSum(reference, given.unit,
                              {given.first_group,
                               given.first_group + given.group_count}))
          << "unit " << given.unit << " groups from " << given.first_group;
    }
    if (slot.kind != wire::SlotKind::kFused) continue;
    const auto& results = done.at(slot.slot).results;
    ASSERT_EQ(results.size(), reference.results.size());
    for (size_t m = 0; m < results.size(); ++m) {
      EXPECT_EQ(results[m].loss_sum, reference.results[m].loss_sum);
      EXPECT_EQ(results[m].target_tokens,
                static_cast<uint64_t>(reference.results[m].target_tokens));
    }
  }
}

}  // namespace roundhouse::worker
