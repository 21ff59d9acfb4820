#include "server/weights/training_state.h"

#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Byte ranges that may not meet.
class Ranges {
 public:
  void Add(const std::string& name, uint64_t offset, uint64_t bytes) {
    EXPECT_EQ(offset % 64, 0u) << name;
    for (const auto& [other, range] : ranges_) {
      EXPECT_TRUE(offset + bytes <= range.first ||
                  range.first + range.second <= offset)
          << name << " lies in " << other;
    }
    EXPECT_TRUE(ranges_.emplace(name, std::make_pair(offset, bytes)).second);
    total_ += (bytes + 63) / 64 * 64;
  }
  uint64_t total_bytes() const { return total_; }
  bool AllWithin(uint64_t offset, uint64_t bytes) const {
    for (const auto& [name, range] : ranges_) {
      if (range.first < offset || range.first + range.second > offset + bytes) {
        return false;
      }
    }
    return true;
  }

 private:
  std::map<std::string, std::pair<uint64_t, uint64_t>> ranges_;
  uint64_t total_ = 0;
};

void AddUnit(const TrainingState& state, int unit, Ranges& ranges) {
  const wire::UnitLayout& layout = state.layout(unit);
  const std::string name = "unit " + std::to_string(unit) + " ";
  const uint64_t fp32 = layout.element_count * 4;
  ranges.Add(name + "compute", layout.compute_offset,
             layout.element_count * DTypeBytes(state.dtype(unit)));
  ranges.Add(name + "master", layout.master_offset, fp32);
  ranges.Add(name + "exp_avg", layout.exp_avg_offset, fp32);
  ranges.Add(name + "exp_avg_sq", layout.exp_avg_sq_offset, fp32);
  if (!state.options().one_pass || unit == 0) {
    ranges.Add(name + "sum", layout.grad_sum_offset, fp32);
  }
  ranges.Add(name + "word", layout.version_word_offset, sizeof(wire::Word));
  ranges.Add(name + "journal", layout.journal_offset, layout.chunk_count * 8);
  ranges.Add(name + "norms", layout.norm_partials_offset,
             layout.chunk_count * 8);
}

TEST(TrainingStateTest, EverythingHasItsOwnAlignedBytesAndNoneAreLeftOver) {
  for (const bool tied : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const TrainingStateOptions options = TestStateOptions(tied, dtype);
      auto arena = *HostArena::Create(64 * kMiB, 3);
      auto state = *TrainingState::Create(*arena, options);
      const auto& job =
          *arena->arena().At<wire::JobLayout>(state->layout_offset());
      Ranges ranges;
      ranges.Add("job", state->layout_offset(), sizeof(wire::JobLayout));
      ranges.Add("units", job.units_offset,
                 job.unit_count * sizeof(wire::UnitLayout));
      ranges.Add("parameters", job.parameters_offset,
                 job.parameter_count * sizeof(wire::ParameterLayout));
      ranges.Add("ledger", job.ledger_offset, job.ledger_entries * 8);
      ranges.Add("scratch", job.scratch_offset,
                 job.scratch_slot_bytes * job.scratch_slot_count);
      for (size_t unit = 0; unit < state->units().size(); ++unit) {
        AddUnit(*state, static_cast<int>(unit), ranges);
      }
      EXPECT_EQ(ranges.total_bytes(), TrainingStateBytes(options));
      EXPECT_EQ(state->host_bytes(), TrainingStateBytes(options));
      EXPECT_TRUE(
          ranges.AllWithin(state->layout_offset(), state->host_bytes()));
    }
  }
}

TEST(TrainingStateTest, TheTableInTheArenaIsTheOneInHand) {
  auto arena = *HostArena::Create(64 * kMiB, 3);
  const TrainingStateOptions options = TestStateOptions(true, DType::kBF16);
  auto state = *TrainingState::Create(*arena, options);
  const wire::Arena& memory = arena->arena();
  const auto& job = *memory.At<wire::JobLayout>(state->layout_offset());
  EXPECT_EQ(job.magic, wire::kLayoutMagic);
  EXPECT_EQ(job.version, wire::kWireVersion);
  EXPECT_EQ(job.job, options.job);
  EXPECT_EQ(job.seed, options.seed);
  EXPECT_EQ(job.dtype, DType::kBF16);
  EXPECT_EQ(job.model.tie_word_embeddings, 1u);
  EXPECT_EQ(job.model.vocab_size, options.model.vocab_size);
  ASSERT_EQ(job.unit_count, state->units().size());
  const auto* units =
      memory.At<wire::UnitLayout>(job.units_offset, job.unit_count);
  const auto* parameters = memory.At<wire::ParameterLayout>(
      job.parameters_offset, job.parameter_count);
  uint32_t next_parameter = 0;
  for (uint32_t u = 0; u < job.unit_count; ++u) {
    EXPECT_EQ(std::memcmp(&units[u], &state->layout(static_cast<int>(u)),
                          sizeof(units[u])),
              0);
    EXPECT_EQ(units[u].first_parameter, next_parameter);
    uint32_t chunks = 0;
    for (uint32_t p = 0; p < units[u].parameter_count; ++p) {
      const wire::ParameterLayout& parameter = parameters[next_parameter++];
      const ParameterSpec& spec = state->units()[u].parameters[p];
      EXPECT_EQ(parameter.unit, u);
      EXPECT_EQ(parameter.role, static_cast<uint32_t>(spec.role));
      EXPECT_EQ(parameter.first_chunk, chunks);
      EXPECT_EQ(parameter.weight_decay, spec.weight_decay ? 1u : 0u);
      EXPECT_EQ(static_cast<int64_t>(parameter.unit_offset_elements),
                spec.unit_offset_elements);
      chunks +=
          static_cast<uint32_t>(wire::ChunkCount(parameter.element_count));
    }
    EXPECT_EQ(units[u].chunk_count, chunks);
  }
  EXPECT_EQ(next_parameter, job.parameter_count);
}

// Offsets of what a frozen unit does not have.
std::vector<uint64_t> TrainingOffsets(const wire::UnitLayout& layout) {
  return {layout.master_offset,     layout.exp_avg_offset,
          layout.exp_avg_sq_offset, layout.grad_sum_offset,
          layout.journal_offset,    layout.norm_partials_offset};
}

TEST(TrainingStateTest, WithAdaptersOnlyTheseHaveMoreThanWeights) {
  for (const bool tied : {false, true}) {
    TrainingStateOptions options = TestStateOptions(tied, DType::kBF16);
    options.adapter = TestAdapter();
    auto arena = *HostArena::Create(64 * kMiB, 3);
    auto base = *BaseWeights::Create(*arena, options.model, options.dtype);
    auto state = *TrainingState::Create(*arena, options, base);
    const auto& job =
        *arena->arena().At<wire::JobLayout>(state->layout_offset());
    EXPECT_EQ(job.adapter.rank, 3);
    EXPECT_EQ(job.adapter.alpha, 6);
    EXPECT_EQ(job.adapter.dropout, 0.1);
    EXPECT_EQ(job.adapter.targets, 0x45u);
    ASSERT_EQ(state->units().size(), 8u);  // 5 of the model, 3 of adapters
    Ranges ranges;
    for (int unit = 0; unit < 5; ++unit) {
      const wire::UnitLayout& layout = state->layout(unit);
      EXPECT_FALSE(state->trainable(unit));
      EXPECT_EQ(state->dtype(unit), DType::kBF16);
      EXPECT_EQ(layout.compute_offset, base->unit(unit).compute_offset);
      EXPECT_EQ(layout.version_word_offset,
                base->unit(unit).version_word_offset);
      EXPECT_EQ(TrainingOffsets(layout), std::vector<uint64_t>(6));
      EXPECT_EQ(state->Weights(unit, 0).bytes, layout.element_count * 2);
      EXPECT_EQ(state->Version(unit, 9).value, kBaseVersion);
      ranges.Add("base " + std::to_string(unit), layout.compute_offset,
                 layout.element_count * 2);
    }
    for (int unit = 5; unit < 8; ++unit) {
      EXPECT_TRUE(state->trainable(unit));
      EXPECT_EQ(state->dtype(unit), DType::kF32);
      EXPECT_EQ(state->Weights(unit, 0).bytes,
                state->layout(unit).element_count * 4);
      EXPECT_EQ(state->Version(unit, 9).value, 9u);
      AddUnit(*state, unit, ranges);
    }
    EXPECT_EQ(state->host_bytes(), TrainingStateBytes(options));
    EXPECT_EQ(state->TrainedUnit(1), 5);
    EXPECT_EQ(state->TrainedUnit(3), 7);
  }
}

// What trains has compute weights twice, in turns; what is frozen has one.
TEST(TrainingStateTest, AnAsynchronousOptimizerHasTwoVersionsOfWeights) {
  for (const bool adapters : {false, true}) {
    TrainingStateOptions options = TestStateOptions(true, DType::kBF16);
    if (adapters) options.adapter = TestAdapter();
    const uint64_t once = TrainingStateBytes(options);
    options.stale = true;
    auto arena = *HostArena::Create(64 * kMiB, 3);
    const auto state = MakeTestState(*arena, options);
    EXPECT_EQ(state->host_bytes(), TrainingStateBytes(options));
    Ranges ranges;
    uint64_t second_bytes = 0;
    for (size_t i = 0; i < state->units().size(); ++i) {
      const int unit = static_cast<int>(i);
      const wire::BufferRef even = state->Weights(unit, 2);
      const wire::BufferRef odd = state->Weights(unit, 3);
      EXPECT_EQ(state->Weights(unit, 0).offset, even.offset);
      EXPECT_EQ(state->Weights(unit, -1).offset, odd.offset);
      if (!state->trainable(unit)) {
        EXPECT_EQ(even.offset, odd.offset);
        continue;
      }
      EXPECT_EQ(odd.bytes, even.bytes);
      AddUnit(*state, unit, ranges);
      ranges.Add("second " + std::to_string(unit), odd.offset, odd.bytes);
      second_bytes += odd.bytes;
    }
    EXPECT_GE(TrainingStateBytes(options), once + second_bytes);
    EXPECT_LT(TrainingStateBytes(options),
              once + second_bytes + 64 * state->units().size());
  }
}

TEST(TrainingStateTest, InOnePassOnlyTheEmbeddingKeepsASum) {
  TrainingStateOptions options = TestStateOptions(true, DType::kBF16);
  options.one_pass = true;
  auto arena = *HostArena::Create(64 * kMiB, 3);
  const auto state = MakeTestState(*arena, options);
  EXPECT_EQ(state->host_bytes(), TrainingStateBytes(options));
  Ranges ranges;
  for (size_t unit = 0; unit < state->units().size(); ++unit) {
    AddUnit(*state, static_cast<int>(unit), ranges);
    EXPECT_EQ(state->layout(static_cast<int>(unit)).grad_sum_offset != 0,
              unit == 0);
  }
}

TEST(TrainingStateTest, TwoJobsShareABaseAndTheLastOneFreesIt) {
  TrainingStateOptions options = TestStateOptions(true);
  options.adapter = TestAdapter();
  auto arena = *HostArena::Create(64 * kMiB, 3);
  const uint64_t before = arena->used_bytes();
  auto base = *BaseWeights::Create(*arena, options.model, options.dtype);
  auto one = *TrainingState::Create(*arena, options, base);
  options.job = 8;
  auto two = *TrainingState::Create(*arena, options, std::move(base));
  for (int unit = 0; unit < 5; ++unit) {
    EXPECT_EQ(one->Weights(unit, 0).offset, two->Weights(unit, 0).offset);
  }
  for (int unit = 5; unit < 8; ++unit) {
    EXPECT_NE(one->Weights(unit, 0).offset, two->Weights(unit, 0).offset);
  }
  one.reset();
  EXPECT_GT(arena->used_bytes(), before + two->host_bytes());
  two.reset();
  EXPECT_EQ(arena->used_bytes(), before);
}

TEST(TrainingStateTest, AWholeModelTrainsUnderItsOwnNumbers) {
  auto arena = *HostArena::Create(64 * kMiB, 3);
  auto state =
      *TrainingState::Create(*arena, TestStateOptions(true, DType::kBF16));
  for (int unit = 0; unit < 5; ++unit) {
    EXPECT_TRUE(state->trainable(unit));
    EXPECT_EQ(state->TrainedUnit(unit), unit);
    EXPECT_EQ(state->dtype(unit), DType::kBF16);
  }
}

TEST(TrainingStateTest, TheLedgerKeepsTheLastSlotOfEveryEntry) {
  auto arena = *HostArena::Create(64 * kMiB, 3);
  auto state = *TrainingState::Create(*arena, TestStateOptions(false));
  const auto& job = *arena->arena().At<wire::JobLayout>(state->layout_offset());
  const auto* ledger = arena->arena().At<std::atomic<uint64_t>>(
      job.ledger_offset, job.ledger_entries);
  state->CommitToLedger(5);
  state->CommitToLedger(6 + job.ledger_entries);
  EXPECT_EQ(ledger[5].load(), 5u);
  EXPECT_EQ(ledger[6].load(), 6u + job.ledger_entries);
  EXPECT_EQ(ledger[7].load(), 0u);
}

TEST(TrainingStateTest, TooLittleMemoryTakesNothing) {
  auto arena = *HostArena::Create(kMiB, 3);
  const uint64_t before = arena->used_bytes();
  const auto state = TrainingState::Create(*arena, TestStateOptions(false));
  EXPECT_EQ(state.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arena->used_bytes(), before);
}

TEST(TrainingStateTest, ItsEndReturnsEveryByte) {
  auto arena = *HostArena::Create(64 * kMiB, 3);
  const uint64_t before = arena->used_bytes();
  auto state = *TrainingState::Create(*arena, TestStateOptions(false));
  EXPECT_GE(arena->used_bytes(), before + state->host_bytes());
  state.reset();
  EXPECT_EQ(arena->used_bytes(), before);
}

}  // namespace
}  // namespace roundhouse
