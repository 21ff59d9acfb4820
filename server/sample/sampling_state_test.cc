#include "server/sample/sampling_state.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/wire/words.h"
#include "gtest/gtest.h"
#include "server/arena/host_arena.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

class SamplingStateTest : public testing::Test {
 protected:
  SamplingStateTest() : arena_(*HostArena::Create(64 << 20, 1)) {}

  void Make(bool tied, const AdapterConfig& adapter, DType dtype) {
    state_.reset();
    base_ = *BaseWeights::Create(*arena_, TestModel(tied), dtype);
    state_ = *SamplingState::Create(*arena_,
                                    {.job = kJob,
                                     .model = TestModel(tied),
                                     .adapter = adapter,
                                     .dtype = dtype},
                                    base_);
  }
  const wire::JobLayout& layout() const {
    return *arena_->arena().At<wire::JobLayout>(state_->layout_offset());
  }
  std::vector<wire::UnitLayout> UnitLayouts() const {
    const auto* first = arena_->arena().At<wire::UnitLayout>(
        layout().units_offset, layout().unit_count);
    return {first, first + layout().unit_count};
  }

  static constexpr uint64_t kJob = 11;
  std::unique_ptr<HostArena> arena_;
  std::shared_ptr<BaseWeights> base_;
  std::unique_ptr<SamplingState> state_;
};

// The tables are those of a training job on the same model, without what only
// training has.
TEST_F(SamplingStateTest, TheLayoutIsATrainingJobsWithoutItsState) {
  for (const bool tied : {false, true}) {
    for (const AdapterConfig& adapter : {AdapterConfig{}, TestAdapter()}) {
      Make(tied, adapter, DType::kBF16);
      TrainingStateOptions options = TestStateOptions(tied, DType::kBF16);
      options.adapter = adapter;
      const auto trained = MakeTestState(*arena_, options);
      EXPECT_EQ(layout().magic, wire::kLayoutMagic);
      EXPECT_EQ(layout().version, wire::kWireVersion);
      EXPECT_EQ(layout().job, kJob);
      EXPECT_EQ(layout().dtype, DType::kBF16);
      EXPECT_EQ(layout().adapter.rank, adapter.rank);
      const auto units = UnitLayouts();
      ASSERT_EQ(units.size(), trained->units().size());
      for (size_t i = 0; i < units.size(); ++i) {
        const wire::UnitLayout& same = trained->layout(static_cast<int>(i));
        EXPECT_EQ(units[i].element_count, same.element_count);
        EXPECT_EQ(units[i].first_parameter, same.first_parameter);
        EXPECT_EQ(units[i].parameter_count, same.parameter_count);
        EXPECT_EQ(units[i].chunk_count, same.chunk_count);
        EXPECT_EQ(units[i].dtype, same.dtype);
        EXPECT_EQ(units[i].master_offset, 0u);
        EXPECT_EQ(units[i].grad_sum_offset, 0u);
        EXPECT_NE(units[i].compute_offset, 0u);
        EXPECT_EQ(units[i].compute_offset % 64, 0u);
        EXPECT_EQ(units[i].version_word_offset % 64, 0u);
      }
    }
  }
}

TEST_F(SamplingStateTest, FrozenUnitsLieInTheBaseAndAdaptersInItsOwnRange) {
  Make(false, TestAdapter(), DType::kF32);
  const auto units = UnitLayouts();
  const size_t model_units = ModelUnits(TestModel(false)).size();
  uint64_t end = state_->layout_offset() + sizeof(wire::JobLayout);
  for (size_t i = 0; i < units.size(); ++i) {
    if (i < model_units) {
      const auto& base = base_->unit(static_cast<int>(i));
      EXPECT_EQ(units[i].compute_offset, base.compute_offset);
      EXPECT_EQ(units[i].version_word_offset, base.version_word_offset);
      continue;
    }
    EXPECT_GE(units[i].version_word_offset, end);
    EXPECT_GE(units[i].compute_offset,
              units[i].version_word_offset + sizeof(wire::Word));
    end = units[i].compute_offset + units[i].element_count * 4;
  }
  EXPECT_GE(layout().units_offset, end);
  EXPECT_LE(layout().parameters_offset +
                layout().parameter_count * sizeof(wire::ParameterLayout),
            state_->layout_offset() + state_->host_bytes());
}

TEST_F(SamplingStateTest, UnitsOfEveryLayerWithTheEmbedding) {
  using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;  // unit, layer
  const auto pairs = [this] {
    Pairs found;
    for (const wire::SlotUnit& unit : state_->units()) {
      found.emplace_back(unit.unit, unit.layer);
      EXPECT_EQ(unit.version.value, kBaseVersion);
      EXPECT_EQ(unit.weights.offset, UnitLayouts()[unit.unit].compute_offset);
    }
    return found;
  };
  Make(false, {}, DType::kF32);
  EXPECT_EQ(pairs(), (Pairs{{0, 0}, {1, 0}, {2, 1}, {3, 2}, {4, 3}}));
  Make(true, {}, DType::kF32);
  EXPECT_EQ(pairs(), (Pairs{{1, 0}, {2, 1}, {3, 2}, {0, 3}, {4, 3}}));
  Make(true, TestAdapter(), DType::kF32);
  EXPECT_EQ(
      pairs(),
      (Pairs{{1, 0}, {5, 0}, {2, 1}, {6, 1}, {3, 2}, {7, 2}, {0, 3}, {4, 3}}));
}

TEST_F(SamplingStateTest, PartsGoWhereTheUnitsLie) {
  Make(false, TestAdapter(), DType::kBF16);
  const auto units = TrainingUnits(TestModel(false), TestAdapter());
  std::vector<std::vector<ParameterSource>> sources(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t p = 0; p < units[u].parameters.size(); ++p) {
      sources[u].push_back(
          {{"", "/f", {.size_bytes = 99}}, u * 100 + p, 1, DType::kF16});
    }
  }
  const size_t split = ModelUnits(TestModel(false)).size();
  const auto middle = sources.begin() + static_cast<std::ptrdiff_t>(split);
  const auto base = state_->BaseParts({sources.begin(), middle});
  const auto adapters = state_->AdapterParts({middle, sources.end()});
  ASSERT_EQ(base.size(), 1u);
  ASSERT_EQ(adapters.size(), 1u);
  EXPECT_EQ(base[0].file_bytes, 99u);
  const wire::FileTensor& first = base[0].tensors[0];
  EXPECT_EQ(first.first_offset, base_->unit(0).compute_offset);
  EXPECT_EQ(first.first_dtype, DType::kBF16);
  EXPECT_EQ(first.file_dtype, DType::kF16);
  EXPECT_EQ(first.second_offset, 0u);
  const wire::FileTensor& adapter = adapters[0].tensors[0];
  EXPECT_EQ(adapter.first_offset, UnitLayouts()[split].compute_offset);
  EXPECT_EQ(adapter.first_dtype, DType::kF32);
  EXPECT_EQ(adapter.file_offset, split * 100);
}

TEST_F(SamplingStateTest, AdaptersArePublishedOnce) {
  Make(false, TestAdapter(), DType::kF32);
  const wire::SlotUnit adapter = state_->units()[2];
  ASSERT_EQ(adapter.unit, 5u);
  const wire::Word& word = arena_->arena().WordAt(adapter.version.offset);
  EXPECT_FALSE(wire::Reached(word, adapter.version.value));
  state_->PublishAdapters();
  EXPECT_TRUE(wire::Reached(word, adapter.version.value));
}

}  // namespace
}  // namespace roundhouse
