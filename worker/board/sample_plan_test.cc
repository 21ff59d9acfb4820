#include "worker/board/sample_plan.h"

#include <cmath>
#include <functional>
#include <string>

#include "base/model/working_memory.h"
#include "gtest/gtest.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

RoundShape Shape(bool adapter = false) {
  RoundShape shape{{{0, 3}}, {{4, 4}, {0, 3}}, 1, 1};
  if (adapter) {
    shape.dtype = DType::kBF16;
    shape.adapter = {.rank = 2, .alpha = 4, .dropout = 0, .targets = 1};
  }
  return shape;
}

class SamplePlanTest : public testing::Test {
 protected:
  explicit SamplePlanTest(bool tied = false, bool adapter = false)
      : job_(SmallConfig(4, tied), Shape(adapter), 1) {}

  absl::StatusOr<SamplePlan> Plan(const wire::RunSample& command,
                                  uint64_t limit = UINT64_MAX) {
    return PlanSample(command, *tables_, job_.arena(), {limit});
  }
  // What refuses the command.
  void ExpectRefused(const wire::RunSample& command, const std::string& text) {
    const absl::Status status = Plan(command).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(status.message()).find("sample 3: "),
              std::string::npos);
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos)
        << status.message();
  }

  SlotTestJob job_;
  std::shared_ptr<const JobTables> tables_ =
      *ReadJobTables(job_.arena(), job_.layout_offset());
  // Sequences of 3 and 5 tokens by 4 new ones.
  wire::RunSample command_ =
      job_.MakeSample(3, {{1, 2, 3}, {4, 5, 6, 7, 8}}, 4);
};

TEST_F(SamplePlanTest, CountsItsMemory) {
  const SamplePlan plan = *Plan(command_);
  uint64_t all = 0, largest = 0;
  for (const auto& unit : command_.units) {
    if (unit.unit == 0) continue;  // rows of it only
    const uint64_t bytes = DeviceBytes(unit.weights.bytes);
    all += bytes;
    largest = std::max(largest, bytes);
  }
  EXPECT_EQ(plan.weight_bytes, all);
  EXPECT_EQ(plan.largest_layer_bytes, largest);
  EXPECT_EQ(plan.row_bytes, 8u * 24 * 4);
  // 4 layers, keys and values, 2 heads of 8; the last token is only drawn.
  EXPECT_EQ(plan.sequences[0].capacity_tokens, 6);
  EXPECT_EQ(plan.sequences[1].capacity_tokens, 8);
  EXPECT_EQ(plan.cache_bytes, (6u + 8) * 4 * 2 * 16 * 4);
  EXPECT_EQ(plan.resident_bytes(),
            plan.cache_bytes + plan.row_bytes + plan.weight_bytes);
  EXPECT_EQ(plan.streamed_bytes(),
            plan.cache_bytes + plan.row_bytes + 2 * largest);
}

TEST_F(SamplePlanTest, TooLittleMemoryNamesBytes) {
  const uint64_t need = Plan(command_)->least_bytes();
  EXPECT_TRUE(Plan(command_, need).ok());
  const absl::Status status = Plan(command_, need - 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (uint64_t number : {need, need - 1}) {
    EXPECT_NE(std::string(status.message()).find(std::to_string(number)),
              std::string::npos)
        << status.message();
  }
}

TEST_F(SamplePlanTest, WhatALibraryComputesWithIsCountedWhereItIsOfTheLimit) {
  const SamplePlan without = *Plan(command_);
  EXPECT_EQ(without.working_bytes, 0u);
  const SamplePlan plan =
      *PlanSample(command_, *tables_, job_.arena(), {UINT64_MAX, true});
  WorkingShape shape;
  shape.batch.tokens = 3 + 5;  // all in one pass
  shape.head_token_chunk = 2;
  EXPECT_EQ(plan.working_bytes,
            WorkingBytes(tables_->config, tables_->adapter, shape, 0, 4));
  EXPECT_EQ(plan.least_bytes(), without.least_bytes() + plan.working_bytes);
  EXPECT_TRUE(
      absl::IsResourceExhausted(PlanSample(command_, *tables_, job_.arena(),
                                           {plan.least_bytes() - 1, true})
                                    .status()));
}

TEST_F(SamplePlanTest, APassIsAsLongAsItsLimitOrItsOnlySequence) {
  auto& layout = *job_.arena().At<wire::JobLayout>(job_.layout_offset());
  layout.model.max_position_tokens = 10000;
  tables_ = *ReadJobTables(job_.arena(), job_.layout_offset());
  const std::vector<int32_t> half(kMaxPassTokens / 2, 1);
  const auto rows = [&](const std::vector<std::vector<int32_t>>& sequences) {
    return Plan(job_.MakeSample(3, sequences, 1))->row_bytes / (24 * 4);
  };
  EXPECT_EQ(rows({half}), half.size());
  EXPECT_EQ(rows({half, half, half}), kMaxPassTokens);
  EXPECT_EQ(rows({half, std::vector<int32_t>(3000, 1)}), 3000u);
}

TEST_F(SamplePlanTest, SequencesThatHaveEndedNeedNothing) {
  command_ = job_.MakeSample(
      3, {{1, 2, 9}, {4, 5, 6, 9, 8}, std::vector<int32_t>(64, 1)}, 4, 2);
  command_.end_tokens = {9};
  const SamplePlan plan = *Plan(command_);
  EXPECT_EQ(plan.sequences[0].capacity_tokens, 0);  // its end was drawn
  EXPECT_EQ(plan.sequences[1].capacity_tokens, 8);
  EXPECT_EQ(plan.sequences[2].capacity_tokens, 0);  // no position is left
  command_.sequences[0].prompt_tokens = 3;  // a prompt may end like that
  EXPECT_EQ(Plan(command_)->sequences[0].capacity_tokens, 6);
}

TEST_F(SamplePlanTest, TheLastPositionBoundsACache) {
  command_ = job_.MakeSample(3, {std::vector<int32_t>(62, 1)}, 4);
  EXPECT_EQ(Plan(command_)->sequences[0].capacity_tokens, 63);
}

struct BadCase {
  const char* name;
  std::function<void(wire::RunSample&)> change;
  const char* says;
};

std::vector<BadCase> BadCases() {
  using wire::RunSample;
  return {
      {"temperature_negative", [](RunSample& s) { s.temperature = -0.5; },
       "temperature is -0.5"},
      {"temperature_nan", [](RunSample& s) { s.temperature = std::nan(""); },
       "temperature is nan"},
      {"temperature_infinite", [](RunSample& s) { s.temperature = INFINITY; },
       "temperature is inf"},
      {"no_sequences", [](RunSample& s) { s.sequences.clear(); },
       "sequences is empty"},
      {"no_new_tokens", [](RunSample& s) { s.new_tokens = 0; },
       "new_tokens is 0"},
      {"too_many_new_tokens", [](RunSample& s) { s.new_tokens = 2049; },
       "2 sequences by 2049 new_tokens: an answer carries 4096"},
      {"end_token_negative",
       [](RunSample& s) {
         s.end_tokens = {2, -1};
       },
       "end_tokens[1] is -1"},
      {"end_token_unknown", [](RunSample& s) { s.end_tokens = {37}; },
       "end_tokens[0] is 37, the vocabulary has 37"},
      {"unit_unknown", [](RunSample& s) { s.units[2].unit = 99; },
       "units[2] is unit 99 of layer 1"},
      {"layer_unknown", [](RunSample& s) { s.units[2].layer = 5; },
       "units[2] is unit 2 of layer 5"},
      {"unit_missing", [](RunSample& s) { s.units.erase(s.units.begin() + 2); },
       "units lists 0 units for layer 1, not the 1"},
      {"unit_twice", [](RunSample& s) { s.units.push_back(s.units[2]); },
       "units lists 2 units for layer 1, not the 1"},
      {"embedding_missing",
       [](RunSample& s) { s.units.erase(s.units.begin()); },
       "units lists no embedding"},
      {"weights_short", [](RunSample& s) { s.units[1].weights.bytes -= 4; },
       "units[1].weights has"},
      {"weights_outside",
       [](RunSample& s) { s.units[0].weights.offset = uint64_t{1} << 40; },
       "units[0].weights at 1099511627776"},
      {"version_unaligned", [](RunSample& s) { s.units[1].version.offset = 8; },
       "units[1].version at 8"},
      {"sequence_twice", [](RunSample& s) { s.sequences[1].number = 0; },
       "sequences[1] has number 0 again"},
      {"tokens_none", [](RunSample& s) { s.sequences[1].tokens.offset = 0; },
       "sequences[1].tokens at 0"},
      {"tokens_outside",
       [](RunSample& s) { s.sequences[1].tokens.offset = UINT64_MAX - 3; },
       "sequences[1].tokens at"},
      {"tokens_overflow",
       [](RunSample& s) { s.sequences[1].tokens.bytes = UINT64_MAX - 3; },
       "sequences[1].tokens at"},
      {"tokens_unaligned",
       [](RunSample& s) { s.sequences[1].tokens.offset += 2; },
       "sequences[1].tokens at"},
      {"tokens_uneven", [](RunSample& s) { s.sequences[1].tokens.bytes = 7; },
       "7 bytes, are no int32"},
      {"prompt_empty", [](RunSample& s) { s.sequences[0].prompt_tokens = 0; },
       "sequences[0] has 3 tokens, 0 of them its prompt"},
      {"prompt_long", [](RunSample& s) { s.sequences[0].prompt_tokens = 4; },
       "sequences[0] has 3 tokens, 4 of them its prompt"},
      {"sequence_long",
       [](RunSample& s) { s.sequences[0].tokens.bytes = 65 * 4; },
       "sequences[0] has 65 tokens, 3 of them its prompt; the model takes 64"},
  };
}

TEST_F(SamplePlanTest, BadCommandsNameTheField) {
  for (const BadCase& bad : BadCases()) {
    SCOPED_TRACE(bad.name);
    wire::RunSample command = command_;
    bad.change(command);
    ExpectRefused(command, bad.says);
  }
}

TEST_F(SamplePlanTest, TokensOutsideTheVocabularyAreNamed) {
  int32_t* const tokens =
      job_.arena().At<int32_t>(command_.sequences[1].tokens.offset, 5);
  tokens[4] = 37;
  ExpectRefused(command_,
                "sequences[1].tokens[4] is 37, the vocabulary has 37");
  tokens[4] = -100;
  ExpectRefused(command_, "sequences[1].tokens[4] is -100");
}

class TiedSamplePlanTest : public SamplePlanTest {
 protected:
  TiedSamplePlanTest() : SamplePlanTest(true) {}
};

TEST_F(TiedSamplePlanTest, TheHeadsMatrixIsTheEmbedding) {
  const SamplePlan plan = *Plan(command_);
  EXPECT_EQ(plan.layer_units[4].size(), 2u);
  EXPECT_EQ(plan.embedding, job_.arena().Bytes(command_.units[0].weights));
  command_.units.erase(command_.units.begin());  // the head lists it too
  EXPECT_EQ(Plan(command_)->embedding, plan.embedding);
}

class AdapterSamplePlanTest : public SamplePlanTest {
 protected:
  AdapterSamplePlanTest() : SamplePlanTest(false, true) {}
};

TEST_F(AdapterSamplePlanTest, AdaptersBelongToTheirLayers) {
  const SamplePlan plan = *Plan(command_);
  EXPECT_EQ(plan.layer_units[0].size(), 2u);
  EXPECT_EQ(plan.cache_bytes, (6u + 8) * 4 * 2 * 16 * 2);  // bf16
  command_.units.erase(command_.units.begin() + 2);
  ExpectRefused(command_, "units lists 1 units for layer 0, not the 2");
}

}  // namespace
}  // namespace roundhouse::worker
