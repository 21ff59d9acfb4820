#include "worker/board/slot_plan.h"

#include <functional>
#include <string>

#include "base/model/working_memory.h"
#include "gtest/gtest.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

RoundShape Shape() {
  return {{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 6, 6, 2};
}

class SlotPlanTest : public testing::Test {
 protected:
  explicit SlotPlanTest(const RoundShape& shape = Shape())
      : job_(SmallConfig(4, true), shape, 1) {}

  absl::StatusOr<SlotPlan> Plan(const wire::RunSlot& slot,
                                uint64_t limit = UINT64_MAX) {
    return PlanSlot(slot, *tables_, job_.arena().size_bytes(), {limit});
  }

  SlotTestJob job_;
  std::shared_ptr<const JobTables> tables_ =
      *ReadJobTables(job_.arena(), job_.layout_offset());
  std::vector<wire::RunSlot> slots_ = job_.MakeRound(1);
};

TEST_F(SlotPlanTest, ForwardSlotNeedsWeightsAndPairsOfActivations) {
  const wire::RunSlot& slot = slots_[0];
  const SlotPlan plan = *Plan(slot);
  const uint64_t activation = DeviceBytes(slot.micro_batches[0].input.bytes);
  uint64_t weights = 0;
  for (const auto& unit : slot.units) {
    weights += DeviceBytes(unit.weights.bytes);
  }
  EXPECT_EQ(plan.weight_bytes, weights);
  EXPECT_EQ(plan.device_bytes(), weights + 2 * activation + 2 * activation);
  EXPECT_EQ(plan.draining_bytes(), 2 * activation);
}

TEST_F(SlotPlanTest, SumsAreThoseOfTheFoldAndOneDownloading) {
  const SlotPlan plan = *Plan(slots_[3]);
  for (const PlannedUnit& unit : plan.units) {
    EXPECT_EQ(unit.contributions.size(), 3u);
    EXPECT_EQ(unit.sums.count, 3u);  // 2 for a subtree of two, 1 on its way
  }
  wire::RunSlot whole = slots_[3];
  for (wire::SlotUnit& unit : whole.units) {
    std::erase_if(whole.contributions, [&](const auto& one) {
      return one.unit == unit.unit && one.first_group != 0;
    });
  }
  for (auto& one : whole.contributions) one.group_count = 6;
  EXPECT_EQ(Plan(whole)->units[0].sums.count, 3u);  // 4 + 1 and the running one
}

TEST_F(SlotPlanTest, RoundedCopiesGoDownInPlaceOfSums) {
  RoundShape shape = Shape();
  shape.dtype = shape.contribution_dtype = DType::kBF16;
  SlotTestJob job(SmallConfig(4, true), shape, 1);
  const auto tables = *ReadJobTables(job.arena(), job.layout_offset());
  const auto slots = job.MakeRound(1);
  const auto plan_of = [&](const wire::RunSlot& slot) {
    return PlanSlot(slot, *tables, job.arena().size_bytes(), {UINT64_MAX});
  };
  const SlotPlan rounded = *plan_of(slots[3]);
  const SlotPlan whole = *Plan(slots_[3]);
  uint64_t down = 0, sum = 0;
  for (size_t u = 0; u < rounded.units.size(); ++u) {
    const PlannedUnit& unit = rounded.units[u];
    EXPECT_EQ(unit.sums.bytes, whole.units[u].sums.bytes);
    EXPECT_EQ(unit.sums.count, 2u);
    EXPECT_EQ(unit.rounded.bytes, unit.sums.bytes / 2);
    EXPECT_EQ(unit.rounded.count, 2u);
    down += unit.rounded.total_bytes();
    sum += DeviceBytes(unit.sums.bytes);
  }
  EXPECT_EQ(rounded.draining_bytes(), rounded.outputs.total_bytes() + down);
  EXPECT_EQ(rounded.device_bytes() - rounded.weight_bytes -
                2 * rounded.outputs.total_bytes() -
                rounded.inputs.total_bytes(),
            2 * sum + down);

  wire::RunSlot slot = slots[3];
  slot.contribution_dtype = DType::kF16;
  EXPECT_NE(plan_of(slot).status().message().find(
                "contribution_dtype is fp16, neither fp32 nor the job's bf16"),
            absl::string_view::npos);
  slot.contribution_dtype = DType::kF32;
  EXPECT_NE(plan_of(slot).status().message().find("contributions[0].buffer"),
            absl::string_view::npos);
}

TEST_F(SlotPlanTest, TheTiedMatrixBelongsToTheHead) {
  const SlotPlan plan = *Plan(slots_[2]);
  EXPECT_EQ(plan.layer_units[0].size(), 2u);
}

TEST_F(SlotPlanTest, GroupsAreMarked) {
  wire::RunSlot slot = slots_[0];
  const uint32_t groups[] = {2, 2, 3, 4, 4, 4};
  for (size_t m = 0; m < 6; ++m) slot.micro_batches[m].group = groups[m];
  const SlotPlan plan = *Plan(slot);
  std::string marks;
  for (const auto& one : plan.micro_batches) {
    marks += one.first_of_group ? (one.last_of_group ? "o" : "[")
                                : (one.last_of_group ? "]" : "-");
  }
  EXPECT_EQ(marks, "[]o[-]");
}

TEST_F(SlotPlanTest, TooLittleMemoryNamesBytes) {
  const uint64_t need = Plan(slots_[3])->device_bytes();
  EXPECT_TRUE(Plan(slots_[3], need).ok());
  const absl::Status status = Plan(slots_[3], need - 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find(std::to_string(need)),
            std::string::npos);
}

TEST_F(SlotPlanTest, WhatALibraryComputesWithIsCountedWhereItIsOfTheLimit) {
  DeviceMemory memory{.limit_bytes = UINT64_MAX, .with_libraries = true};
  const auto plan = [&](const wire::RunSlot& slot) {
    return PlanSlot(slot, *tables_, job_.arena().size_bytes(), memory);
  };
  const wire::SlotMicroBatch& given = slots_[3].micro_batches[0];
  WorkingShape shape;
  shape.batch = {given.rows, given.row_tokens};
  shape.packed = given.positions.bytes > 0;
  EXPECT_EQ(plan(slots_[0])->working_bytes,
            WorkingBytes(tables_->config, tables_->adapter, shape, 0, 1));
  shape.backward = true;
  const uint64_t working =
      WorkingBytes(tables_->config, tables_->adapter, shape, 2, 3);
  EXPECT_EQ(plan(slots_[3])->working_bytes, working);
  EXPECT_EQ(plan(slots_[3])->device_bytes(), Plan(slots_[3])->device_bytes());
  EXPECT_EQ(Plan(slots_[3])->working_bytes, 0u);
  shape.layer_recompute = true;
  slots_[3].recompute = wire::Recompute::kLayer;
  EXPECT_EQ(plan(slots_[3])->working_bytes,
            WorkingBytes(tables_->config, tables_->adapter, shape, 2, 3));

  slots_[3].recompute = wire::Recompute::kStage;
  memory.limit_bytes = plan(slots_[3])->device_bytes() + working;
  EXPECT_EQ(plan(slots_[3]).status(), absl::OkStatus());
  --memory.limit_bytes;
  const absl::Status status = plan(slots_[3]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message())
                .find(std::to_string(working) + " to compute with"),
            std::string::npos)
      << status.message();
}

struct BadCase {
  const char* name;
  int slot;
  std::function<void(wire::RunSlot&)> change;
  const char* says;
};

std::vector<BadCase> BadCases() {
  using wire::RunSlot;
  return {
      {"no_micro_batches", 0, [](RunSlot& s) { s.micro_batches.clear(); },
       "micro_batches is empty"},
      {"layers_reversed", 0, [](RunSlot& s) { s.first_layer = 3; },
       "layers 3..1"},
      {"layer_beyond_head", 2, [](RunSlot& s) { s.last_layer = 9; },
       "layers 4..9"},
      {"forward_with_head", 0, [](RunSlot& s) { s.last_layer = 4; },
       "cannot end at layer 4"},
      {"fused_without_head", 2,
       [](RunSlot& s) { s.first_layer = s.last_layer = 3; },
       "cannot end at layer 3"},
      {"unit_missing", 0, [](RunSlot& s) { s.units.pop_back(); },
       "units lists 0 units for layer 1"},
      {"unit_twice", 0, [](RunSlot& s) { s.units.push_back(s.units[0]); },
       "units lists 2 units for layer 0"},
      {"unit_unknown", 0, [](RunSlot& s) { s.units[1].unit = 99; },
       "units[1] is unit 99"},
      {"weights_short", 0, [](RunSlot& s) { s.units[0].weights.bytes -= 4; },
       "units[0].weights has"},
      {"weights_outside", 0,
       [](RunSlot& s) { s.units[0].weights.offset = uint64_t{1} << 40; },
       "units[0].weights at 1099511627776"},
      {"weights_overflow", 0,
       [](RunSlot& s) { s.units[0].weights.offset = UINT64_MAX - 63; },
       "units[0].weights at"},
      {"weights_unaligned", 0,
       [](RunSlot& s) { s.units[0].weights.offset += 4; },
       "units[0].weights at"},
      {"version_unaligned", 0,
       [](RunSlot& s) { s.units[0].version.offset = 8; },
       "units[0].version at 8"},
      {"fused_in_evaluation", 2,
       [](RunSlot& s) { s.mode = wire::StepMode::kEvaluate; },
       "mode is 0 in a slot of kind 2"},
      {"rows_zero", 0, [](RunSlot& s) { s.micro_batches[2].rows = 0; },
       "micro_batches[2] has 0 rows"},
      {"rows_huge", 0,
       [](RunSlot& s) { s.micro_batches[2].rows = 0xffffffffu; },
       "micro_batches[2].input has"},
      {"input_none", 0, [](RunSlot& s) { s.micro_batches[1].input.offset = 0; },
       "micro_batches[1].input at 0"},
      {"labels_none", 2, [](RunSlot& s) { s.micro_batches[1].labels = {}; },
       "micro_batches[1].labels has 0"},
      {"positions_short", 0,
       [](RunSlot& s) {
         s.micro_batches[1].positions = {s.micro_batches[1].input.offset, 4};
       },
       "micro_batches[1].positions has 4"},
      {"gradient_none", 3, [](RunSlot& s) { s.micro_batches[1].gradient = {}; },
       "micro_batches[1].gradient has 0"},
      {"groups_skip", 3, [](RunSlot& s) { s.micro_batches[5].group = 9; },
       "micro_batches[5] is of group 9"},
      {"output_boundary", 0, [](RunSlot& s) { s.outputs[0].boundary = 3; },
       "at boundary 3"},
      {"output_gradient", 0,
       [](RunSlot& s) { s.outputs[0].kind = wire::OutputKind::kGradient; },
       "outputs[0] is the gradient"},
      {"output_micro_batch", 0,
       [](RunSlot& s) { s.outputs[0].micro_batch = 6; },
       "outputs[0] is of micro-batch 6"},
      {"output_raise", 0, [](RunSlot& s) { s.outputs[0].raise.offset = 3; },
       "outputs[0].raise at 3"},
      {"contribution_forward", 0,
       [](RunSlot& s) { s.contributions.emplace_back(); },
       "contributions of a slot without backward"},
      {"contribution_foreign", 3,
       [](RunSlot& s) { s.contributions[0].unit = 5; },
       "contributions[0] is of unit 5"},
      {"contribution_gap", 3,
       [](RunSlot& s) { s.contributions.erase(s.contributions.begin() + 1); },
       "expected a subtree of 6 groups from 2"},
      {"contribution_short", 3, [](RunSlot& s) { s.contributions.pop_back(); },
       "end at group 4"},
      {"contribution_no_subtree", 3,
       [](RunSlot& s) {
         s.contributions[0].group_count = 1;
         s.contributions[1].first_group = 1;
         s.contributions[1].group_count = 3;
       },
       "contributions[1] of groups 1+3"},
      {"contribution_bytes", 3,
       [](RunSlot& s) { s.contributions[0].buffer.bytes = 64; },
       "contributions[0].buffer has 64"},
  };
}

TEST_F(SlotPlanTest, BadCommandsNameTheField) {
  for (const BadCase& bad : BadCases()) {
    SCOPED_TRACE(bad.name);
    wire::RunSlot slot = slots_[static_cast<size_t>(bad.slot)];
    bad.change(slot);
    const absl::Status status = Plan(slot).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(bad.says), std::string::npos)
        << status.message();
  }
}

TEST_F(SlotPlanTest, BadLayoutsNameTheField) {
  auto& layout = *job_.arena().At<wire::JobLayout>(job_.layout_offset());
  const wire::JobLayout kept = layout;
  const auto says = [&](const char* text) {
    const auto tables = ReadJobTables(job_.arena(), job_.layout_offset());
    EXPECT_EQ(tables.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(tables.status().message()).find(text),
              std::string::npos)
        << tables.status().message();
    layout = kept;
  };
  layout.version = 9;
  says("version 9");
  layout.dtype = static_cast<DType>(17);
  says("dtype 17");
  layout.model.architecture = 99;
  says("architecture 99");
  layout.model.rope_type = 7;
  says("rope type 7");
  layout.unit_count = 5;
  says("5 units for 4 layers");
  layout.units_offset = uint64_t{1} << 50;
  says("units at");
  layout.parameter_count = 3;
  says("has parameters");
  layout.head_token_chunk = 0;
  says("head_token_chunk");
  layout.adapter = {.rank = 4, .alpha = 8, .dropout = 1, .targets = 1};
  says("dropout 1");
  layout.adapter = {.rank = 4, .alpha = 8, .dropout = 0, .targets = 128};
  says("targets 128");
  layout.adapter = {.rank = 4, .alpha = 8, .dropout = 0, .targets = 1};
  says("6 units for 4 layers with adapters");
  auto& unit = job_.arena().At<wire::UnitLayout>(layout.units_offset, 6)[2];
  unit.dtype = DType::kBF16;
  says("unit 2 has dtype 2, expected 1 (fp32)");
  unit.dtype = DType::kF32;
  EXPECT_FALSE(ReadJobTables(job_.arena(), uint64_t{1} << 50).ok());
}

class AdapterPlanTest : public SlotPlanTest {
 protected:
  AdapterPlanTest() : SlotPlanTest(AdapterShape()) {}

  static RoundShape AdapterShape() {
    RoundShape shape = Shape();
    shape.dtype = DType::kBF16;
    shape.adapter = {.rank = 2, .alpha = 4, .dropout = 0, .targets = 1};
    shape.packed = true;
    return shape;
  }
};

TEST_F(AdapterPlanTest, AdaptersAreFp32UnitsOfTheirLayers) {
  const wire::RunSlot& slot = slots_[3];
  const SlotPlan plan = *Plan(slot);
  ASSERT_EQ(slot.units.size(), 4u);
  for (size_t u = 0; u < slot.units.size(); ++u) {
    const uint32_t number = slot.units[u].unit;
    const bool adapter = number > 5;
    EXPECT_EQ(plan.units[u].weight_bytes,
              tables_->units[number].element_count * (adapter ? 4 : 2));
    EXPECT_EQ(plan.units[u].contributions.empty(), !adapter);
    EXPECT_EQ(plan.units[u].sums.total_bytes() > 0, adapter);
  }
  EXPECT_EQ(plan.layer_units[0].size(), 2u);
}

TEST_F(AdapterPlanTest, AContributionOfAFrozenUnitIsRefused) {
  wire::RunSlot slot = slots_[3];
  slot.contributions[0].unit = slot.units[0].unit;
  slot.contributions[0].buffer = slot.units[0].weights;
  slot.contributions[0].buffer.bytes *= 2;
  const absl::Status status = Plan(slot).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("which is frozen"),
            std::string::npos)
      << status.message();
}

TEST_F(AdapterPlanTest, AnAdapterLeftOutIsRefused) {
  wire::RunSlot slot = slots_[0];
  slot.units.pop_back();
  EXPECT_NE(std::string(Plan(slot).status().message())
                .find("units lists 1 units for layer 1, not the 2"),
            std::string::npos);
}

}  // namespace
}  // namespace roundhouse::worker
