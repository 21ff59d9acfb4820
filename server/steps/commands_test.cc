// Every buffer, word and value of one small plan's commands: what one command
// raises is what another waits for, and nothing else.
#include "server/steps/commands.h"

#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/steps/expert_counts.h"
#include "server/testing/test_boundaries.h"
#include "server/testing/test_model.h"

namespace roundhouse {
namespace {

// Layers 0..2 and the head (3): forward [0,1], fused [2,3], backward [1,1]
// [0,0].
Plan TestPlan() { return {{{0, 1}}, {{2, 3}, {1, 1}, {0, 0}}, true}; }

constexpr uint64_t kPass = 41;
constexpr uint64_t kVersion = 40;
constexpr uint64_t kNextVersion = 42;

struct Trained {
  bool tied = false;
  bool adapters = false;
  bool wide = false;     // slots of one or two parts
  bool rounded = false;  // contributions in bf16
};

class CommandsTest : public testing::TestWithParam<Trained> {
 protected:
  CommandsTest() : arena_(*HostArena::Create(64 << 20, 3)) {
    TrainingStateOptions state = TestStateOptions(GetParam().tied);
    if (GetParam().adapters) state.adapter = TestAdapter();
    state_ = MakeTestState(*arena_, state);
    RoundBuffersOptions options;
    options.plan = TestPlan();
    options.layers = 4;
    if (GetParam().wide) options.plan.split = {{1, 1}, {1, 1}, {2}, {1, 1}};
    options.micro_batches = 3;
    options.rows = 2;
    options.row_tokens = 4;
    options.hidden_size = 24;
    options.row_gradient =
        GetParam().adapters ? RowGradient::kUnread : RowGradient::kRead;
    options.boundary_tensors = 12;
    options.packed = true;
    options.expert_layers = 2;
    options.experts_per_token = 3;
    options.expert_count = 4;
    options.contributions.units = ContributedUnits(state.model, state.adapter);
    options.contributions.slots_ahead = 30;  // blocks for all of a round
    if (GetParam().rounded) options.contributions.dtype = DType::kBF16;
    buffers_ = *RoundBuffers::Create(*arena_, options);
    boundaries_ = TestRound(options.plan, options.row_gradient,
                            options.micro_batches, pool_);
    step_.step = 5;
    step_.target_tokens = 10;
    step_.version = kVersion;
    step_.next_version = kNextVersion;
    step_.loss_scale = 4;
    step_.update = {0.5, 0.9, 0.99, 1e-8, 0.1, 0.25f, 3};
    RoundData& round = step_.rounds.emplace_back();
    round.pass = kPass;
    round.micro_batches = {{{0, 1}, 4}, {{2, 3}, 3}, {{4}, 2}};
    round.groups = {0, 0, 1};
    round.group_count = 2;
  }

  wire::RunSlot Slot(SlotKind kind, LayerRange layers, int buffer_set = 1,
                     IndexRange micro_batches = {0, 3}) const {
    RunSlotAction action;
    action.slot = SlotId{9};
    action.place.buffer_set = buffer_set;
    action.kind = kind;
    action.layers = layers;
    action.micro_batches = micro_batches;
    action.blocks = SlotBlocks(action);
    action.boundaries = Boundaries(action);
    return SlotCommand(action, step_, *state_, *buffers_);
  }
  SlotBoundaries Boundaries(const RunSlotAction& action) const {
    return boundaries_.OfSlot(
        TestSlot(buffers_->options().plan, action.kind, action.layers),
        action.micro_batches);
  }
  // Each sum of a round has one of its own.
  std::vector<int> UnitBlocks(int layer) const {
    const Plan& plan = buffers_->options().plan;
    int first = 0;
    for (int before = 0; before < layer && layer < 3; ++before) {
      first += static_cast<int>(ContributedGroups(plan, before, 2).size());
    }
    std::vector<int> blocks(ContributedGroups(plan, layer, 2).size());
    std::iota(blocks.begin(), blocks.end(), first);
    return blocks;
  }
  std::vector<int> SlotBlocks(const RunSlotAction& action) const {
    std::vector<int> blocks;
    if (action.kind != SlotKind::kFused && action.kind != SlotKind::kBackward) {
      return blocks;
    }
    const std::vector<int64_t> groups = {0, 0, 1};
    for (int l = action.layers.first; l <= action.layers.last; ++l) {
      if (GetParam().adapters && l == 3) continue;
      const std::vector<int> of_layer = UnitBlocks(l);
      int index = 0;
      for (const IndexRange& sum :
           ContributedGroups(buffers_->options().plan, l, 2)) {
        if (groups[action.micro_batches.begin] <= sum.begin &&
            sum.end <= groups[action.micro_batches.end - 1] + 1) {
          blocks.push_back(of_layer[index]);
        }
        ++index;
      }
    }
    return blocks;
  }
  // The round's slots, as the plan cuts it.
  std::vector<wire::RunSlot> TrainSlots() const {
    std::vector<wire::RunSlot> slots;
    for (const Part& part :
         PartsOf(PlanOfRound(buffers_->options().plan, 3, 2), 3)) {
      slots.push_back(Slot(part.kind, part.layers, 1, part.micro_batches));
    }
    return slots;
  }
  RunHostOpAction HostAction(HostOpKind kind, int unit = 0) const {
    RunHostOpAction action;
    action.op = HostOpId{3};
    action.kind = kind;
    action.unit = unit;
    action.buffer_set = 1;
    action.last_round = true;
    action.rows = kind == HostOpKind::kReduce && unit == 0;
    if (kind == HostOpKind::kGather) action.row_blocks = boundaries_.OfRows();
    if (action.rows) action.row_blocks = boundaries_.OfRowGradient();
    if (kind == HostOpKind::kReduce && (unit > 0 || GetParam().tied)) {
      action.blocks = UnitBlocks(unit == 0 ? 3 : unit - 1);
    }
    return action;
  }
  wire::HostOp Host(const RunHostOpAction& action) const {
    return HostCommand(action, step_, *state_, *buffers_);
  }
  wire::HostOp Host(HostOpKind kind, int unit = 0) const {
    return Host(HostAction(kind, unit));
  }
  // Units of the dispatcher that have a gradient.
  std::vector<int> TrainedUnits() const {
    if (GetParam().adapters) return {1, 2, 3};
    return {0, 1, 2, 3, 4};
  }
  uint64_t Activation(int micro_batch) const {
    const uint64_t tokens[] = {8, 6, 2};
    return tokens[micro_batch] * 24 * 4;
  }

  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<RoundBuffers> buffers_;
  BlockPool pool_;
  RoundBoundaries boundaries_;
  StepData step_;
};

INSTANTIATE_TEST_SUITE_P(
    TiedAndNotAndWithAdapters, CommandsTest,
    testing::Values(Trained{}, Trained{.tied = true}, Trained{.adapters = true},
                    Trained{.tied = true, .adapters = true},
                    Trained{.wide = true}, Trained{.tied = true, .wide = true},
                    Trained{.adapters = true, .wide = true},
                    Trained{.tied = true, .wide = true, .rounded = true}));

TEST_P(CommandsTest, ASlotSaysWhatItIs) {
  const wire::RunSlot slot = Slot(SlotKind::kFused, {2, 3});
  EXPECT_EQ(slot.job, 7u);
  EXPECT_EQ(slot.slot, 9u);
  EXPECT_EQ(slot.pass, kPass);
  EXPECT_EQ(slot.step, 5u);
  EXPECT_EQ(slot.kind, SlotKind::kFused);
  EXPECT_EQ(slot.first_layer, 2u);
  EXPECT_EQ(slot.last_layer, 3u);
  EXPECT_EQ(slot.total_groups, 2u);
  EXPECT_EQ(slot.loss_scale, 0.4);
  EXPECT_EQ(slot.gather_begun.offset, 0u);
  const wire::RunSlot first = Slot(SlotKind::kForward, {0, 1});
  EXPECT_EQ(first.kind, SlotKind::kForward);
  const wire::HostOp gather = Host(HostOpKind::kGather);
  EXPECT_EQ(first.gather_begun.offset, buffers_->GatherWord(1));
  EXPECT_EQ(first.gather_begun.offset, gather.begun.offset);
  EXPECT_EQ(first.gather_begun.value, kPass);
  EXPECT_EQ(gather.begun.value, kPass);
  EXPECT_NE(buffers_->GatherWord(0), buffers_->GatherWord(1));
  EXPECT_EQ(Slot(SlotKind::kBackward, {0, 0}).kind, SlotKind::kBackward);
  ASSERT_EQ(slot.micro_batches.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(slot.micro_batches[i].index, i);
    EXPECT_EQ(slot.micro_batches[i].group, i / 2);
    EXPECT_EQ(slot.micro_batches[i].rows, i == 2 ? 1u : 2u);
    EXPECT_EQ(slot.micro_batches[i].row_tokens, 4 - i);
    EXPECT_EQ(slot.micro_batches[i].step_index, i);
  }
  EXPECT_EQ(slot.mode, wire::StepMode::kTrain);
}

TEST_P(CommandsTest, SumsGoIntoTheBlocksThatTheActionNames) {
  RunSlotAction action;
  action.kind = SlotKind::kBackward;
  action.layers = {1, 1};
  action.micro_batches = {0, 3};
  action.boundaries = Boundaries(action);
  std::set<uint64_t> offsets;
  for (const int block : {0, 1, 2}) {
    action.blocks = {block};
    const auto slot = SlotCommand(action, step_, *state_, *buffers_);
    ASSERT_EQ(slot.contributions.size(), 1u);
    offsets.insert(slot.contributions[0].buffer.offset);
  }
  EXPECT_EQ(offsets.size(), 3u);
  action.blocks = {0, 1};
  EXPECT_DEATH(SlotCommand(action, step_, *state_, *buffers_), "blocks");
}

// Part of the key of dropout masks: the same for a micro-batch in every slot,
// another one for each of the step.
TEST_P(CommandsTest, MicroBatchesAreCountedOverTheRoundsOfAStep) {
  RoundData second = step_.rounds[0];
  second.pass = kPass + 1;
  second.micro_batches.pop_back();
  step_.rounds.push_back(second);
  RunSlotAction action;
  action.place.round = 1;
  action.micro_batches = {0, 2};
  for (const auto& [kind, layers] :
       {std::make_pair(SlotKind::kForward, LayerRange{0, 1}),
        std::make_pair(SlotKind::kFused, LayerRange{2, 3}),
        std::make_pair(SlotKind::kBackward, LayerRange{1, 1})}) {
    action.kind = kind;
    action.layers = layers;
    action.blocks = SlotBlocks(action);
    action.boundaries = Boundaries(action);
    const wire::RunSlot slot = SlotCommand(action, step_, *state_, *buffers_);
    ASSERT_EQ(slot.micro_batches.size(), 2u);
    for (uint32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(slot.micro_batches[i].index, i);
      EXPECT_EQ(slot.micro_batches[i].step_index, 3 + i);
    }
  }
}

// Adapters' first stage sends nothing upstream: the embedding is frozen.
TEST_P(CommandsTest, AFrozenEmbeddingGetsNoGradient) {
  const bool adapters = GetParam().adapters;
  EXPECT_EQ(Slot(SlotKind::kBackward, {0, 0}).outputs.size(),
            adapters ? 0u : 3u);
  EXPECT_EQ(Slot(SlotKind::kBackward, {1, 1}).outputs.size(), 3u);
  const wire::HostOp gather = Host(HostOpKind::kGather);
  EXPECT_EQ(gather.unit, 0u);
  EXPECT_EQ(gather.version.offset, state_->layout(0).version_word_offset);
  EXPECT_EQ(gather.version.value, adapters ? kBaseVersion : kVersion);
}

TEST_P(CommandsTest, EveryWaitHasExactlyOneRaise) {
  // Word -> bytes and value that the producer raises it with.
  std::map<uint64_t, std::tuple<uint64_t, uint64_t, uint64_t>> raised;
  auto raise = [&](const wire::WordRef& word, const wire::BufferRef& buffer) {
    EXPECT_TRUE(
        raised
            .emplace(word.offset,
                     std::make_tuple(word.value, buffer.offset, buffer.bytes))
            .second)
        << "two producers raise word " << word.offset;
  };
  const auto slots = TrainSlots();
  for (const auto& data : Host(HostOpKind::kGather).micro_batches) {
    raise(data.word, data.data);
  }
  for (const wire::RunSlot& slot : slots) {
    for (const wire::SlotOutput& output : slot.outputs) {
      raise(output.raise, output.buffer);
    }
  }
  std::set<uint64_t> waited;
  auto wait = [&](const wire::WordRef& word, const wire::BufferRef& buffer) {
    ASSERT_EQ(raised.count(word.offset), 1u) << "nobody raises what is waited "
                                                "for";
    EXPECT_EQ(raised[word.offset],
              std::make_tuple(word.value, buffer.offset, buffer.bytes));
    EXPECT_EQ(word.value, kPass);
    waited.insert(word.offset);
  };
  for (const wire::RunSlot& slot : slots) {
    for (const wire::SlotMicroBatch& data : slot.micro_batches) {
      wait(data.input_ready, data.input);
      EXPECT_EQ(data.input.bytes, Activation(static_cast<int>(data.index)));
      const bool backward = slot.kind == SlotKind::kBackward;
      EXPECT_EQ(data.gradient.offset != 0, backward);
      if (backward) wait(data.gradient_ready, data.gradient);
      EXPECT_EQ(data.labels.offset != 0, slot.kind == SlotKind::kFused);
    }
  }
  for (int unit : TrainedUnits()) {
    for (const auto& data : Host(HostOpKind::kReduce, unit).micro_batches) {
      wait(data.word, data.data);
    }
  }
  EXPECT_EQ(waited.size(), raised.size()) << "something nobody waits for";
}

TEST_P(CommandsTest, ATiedHeadsShareAndTheRowsMayComeByThemselves) {
  if (!GetParam().tied || GetParam().adapters) GTEST_SKIP() << "one part";
  RunHostOpAction share = HostAction(HostOpKind::kReduce, 0);
  share.rows = false;
  const wire::HostOp first = Host(share);
  EXPECT_TRUE(first.micro_batches.empty());
  EXPECT_FALSE(first.contributions.empty());
  EXPECT_FALSE(first.keep_partials);
  EXPECT_TRUE(first.want_norm);
  RunHostOpAction rows = HostAction(HostOpKind::kReduce, 0);
  rows.blocks.clear();
  rows.add_to_sum = true;
  const wire::HostOp second = Host(rows);
  EXPECT_EQ(second.micro_batches.size(), 3u);
  EXPECT_TRUE(second.contributions.empty());
  EXPECT_TRUE(second.keep_partials);
  EXPECT_TRUE(second.want_norm);
}

// Micro-batches keep their index in the round; outputs say where they stand in
// the command.
TEST_P(CommandsTest, APartHasItsShareOfTheRound) {
  const wire::RunSlot whole = Slot(SlotKind::kBackward, {1, 1});
  const wire::RunSlot part = Slot(SlotKind::kBackward, {1, 1}, 1, {2, 3});
  ASSERT_EQ(part.micro_batches.size(), 1u);
  EXPECT_EQ(part.micro_batches[0].index, 2u);
  EXPECT_EQ(part.micro_batches[0].step_index, 2u);
  EXPECT_EQ(part.micro_batches[0].group, 1u);
  EXPECT_EQ(part.micro_batches[0].input.offset,
            whole.micro_batches[2].input.offset);
  EXPECT_EQ(part.micro_batches[0].gradient_ready.offset,
            whole.micro_batches[2].gradient_ready.offset);
  ASSERT_EQ(part.outputs.size(), 1u);
  EXPECT_EQ(part.outputs[0].micro_batch, 0u);
  EXPECT_EQ(part.outputs[0].raise.offset, whole.outputs[2].raise.offset);
  EXPECT_EQ(part.total_groups, 2u);
  EXPECT_EQ(part.loss_scale, whole.loss_scale);
}

TEST_P(CommandsTest, SumsThatAnEarlierAttemptLeftAreNotWrittenAgain) {
  const bool tied_share = GetParam().tied && !GetParam().adapters;
  RunSlotAction action;
  action.slot = SlotId{9};
  action.place.buffer_set = 1;
  action.kind = SlotKind::kFused;
  action.layers = {2, 3};
  action.micro_batches = {0, 3};
  action.blocks = SlotBlocks(action);
  action.boundaries = Boundaries(action);
  const auto sums_of = [&] {
    std::map<uint32_t, std::set<uint64_t>> sums;
    for (const wire::SlotContribution& sum :
         SlotCommand(action, step_, *state_, *buffers_).contributions) {
      sums[sum.unit].insert(sum.buffer.offset);
    }
    return sums;
  };
  auto left = sums_of();
  // Layer 2's unit, and of a tied head its share of the embedding's.
  action.units_down = {3};
  EXPECT_EQ(left.erase(GetParam().adapters ? 7 : 3), 1u);
  EXPECT_EQ(sums_of(), left);
  if (!tied_share) return;
  constexpr int kHeadShare = 5;
  action.units_down.push_back(kHeadShare);
  EXPECT_EQ(left.erase(0), 1u);
  EXPECT_EQ(sums_of(), left);
  EXPECT_EQ(left.count(4), 1u);  // the final norm's go on
}

TEST_P(CommandsTest, ContributionsCoverEveryTrainedUnitOnce) {
  const bool tied = GetParam().tied;
  const bool adapters = GetParam().adapters;
  // Unit -> first group, groups, buffer of each sum.
  using Sum = std::tuple<uint32_t, uint32_t, uint64_t>;
  std::map<uint32_t, std::set<Sum>> contributed;
  std::set<uint64_t> offsets;
  const DType dtype = GetParam().rounded ? DType::kBF16 : DType::kF32;
  for (const wire::RunSlot& slot : TrainSlots()) {
    EXPECT_EQ(slot.contribution_dtype, dtype);
    for (const wire::SlotContribution& sum : slot.contributions) {
      EXPECT_GE(sum.first_group, slot.micro_batches.front().group);
      EXPECT_LE(sum.first_group + sum.group_count,
                slot.micro_batches.back().group + 1);
      EXPECT_TRUE(state_->trainable(static_cast<int>(sum.unit)));
      EXPECT_EQ(sum.buffer.bytes,
                state_->layout(static_cast<int>(sum.unit)).element_count *
                    DTypeBytes(dtype));
      contributed[sum.unit].insert(
          {sum.first_group, sum.group_count, sum.buffer.offset});
      EXPECT_TRUE(offsets.insert(sum.buffer.offset).second);
    }
  }
  // The embedding's comes from the host, and from the head when it is tied.
  EXPECT_EQ(contributed.size(), adapters ? 3u : tied ? 5u : 4u);
  EXPECT_EQ(contributed.count(0), tied && !adapters ? 1u : 0u);
  for (int unit : TrainedUnits()) {
    const wire::HostOp op = Host(HostOpKind::kReduce, unit);
    EXPECT_EQ(op.unit, static_cast<uint32_t>(adapters ? unit + 4 : unit));
    EXPECT_EQ(op.total_groups, 2u);
    EXPECT_EQ(op.contribution_dtype, dtype);
    EXPECT_TRUE(op.want_norm);
    EXPECT_EQ(op.sum_write, wire::SumWrite::kReplace);
    EXPECT_EQ(op.micro_batches.size(), unit == 0 ? 3u : 0u);
    if (unit == 0 && !tied) {
      EXPECT_TRUE(op.contributions.empty());
      continue;
    }
    const bool two = GetParam().wide && unit != 2;  // layer 1's slot is not
    ASSERT_EQ(op.contributions.size(), two ? 2u : 1u);
    std::set<Sum> reduced;
    uint32_t next = 0;
    for (const wire::HostContribution& sum : op.contributions) {
      EXPECT_EQ(sum.first_group, next);
      next += sum.group_count;
      reduced.insert({sum.first_group, sum.group_count, sum.buffer.offset});
    }
    EXPECT_EQ(next, 2u);
    EXPECT_EQ(reduced, contributed.at(op.unit));
  }
}

TEST_P(CommandsTest, SlicesOfAnExchangeAreWhatTheHostReads) {
  if (!GetParam().wide || GetParam().adapters) return;  // none is exchanged
  RoundData& round = step_.rounds[0];
  const Plan& plan = buffers_->options().plan;
  for (int unit : TrainedUnits()) {
    if (unit == 0 && !GetParam().tied) continue;
    const int layer = unit == 0 ? 3 : unit - 1;
    const auto sums = ContributedGroups(plan, layer, 2);
    if (sums.size() == 1) continue;
    const wire::HostOp apart = Host(HostOpKind::kReduce, unit);
    round.sliced = {unit};
    const wire::HostOp op = Host(HostOpKind::kReduce, unit);
    round.sliced.clear();
    EXPECT_EQ(op.contribution_dtype, DType::kF32);
    EXPECT_EQ(op.micro_batches.size(), apart.micro_batches.size());
    ASSERT_EQ(op.contributions.size(), 2u);
    size_t part_number = 0;
    for (const Part& part : PartsOf(PlanOfRound(plan, 3, 2), 3)) {
      if (!part.backward() || !part.layers.Contains(layer)) continue;
      RunSlotAction action;
      action.place.buffer_set = 1;
      action.kind = part.kind;
      action.layers = part.layers;
      action.micro_batches = part.micro_batches;
      action.blocks = SlotBlocks(action);
      EXPECT_EQ(ContributedUnitsOf(action, *state_).size(),
                part.layers.layer_count() +
                    (GetParam().tied && part.layers.Contains(3) ? 1u : 0u));
      const wire::PeerSums command =
          ExchangeCommand(action, step_, unit, *state_, *buffers_);
      EXPECT_EQ(command.dtype, apart.contribution_dtype);
      EXPECT_GT(command.chunk_elements, 0u);
      EXPECT_EQ(command.self, part_number);
      ASSERT_EQ(command.members.size(), 2u);
      ASSERT_EQ(command.sums.size(), 2u);
      for (uint32_t i = 0; i < 2; ++i) {
        EXPECT_EQ(command.sums[i].member, i);
        EXPECT_EQ(command.sums[i].group_count, sums[i].size());
        EXPECT_EQ(command.members[i].first_element,
                  op.contributions[i].first_element);
        EXPECT_EQ(command.members[i].elements, op.contributions[i].elements);
      }
      // Where the part's own sum would lie, were it sent apart.
      const wire::HostContribution& slice = op.contributions[part_number];
      EXPECT_EQ(command.slice.offset, slice.buffer.offset);
      EXPECT_EQ(command.slice.bytes, slice.buffer.bytes);
      EXPECT_EQ(slice.buffer.offset,
                apart.contributions[part_number].buffer.offset);
      EXPECT_LE(slice.buffer.bytes,
                apart.contributions[part_number].buffer.bytes);
      EXPECT_EQ(slice.buffer.bytes, slice.elements * sizeof(float));
      ++part_number;
    }
    EXPECT_EQ(part_number, 2u);
    EXPECT_EQ(op.contributions[0].elements + op.contributions[1].elements,
              state_->layout(unit).element_count);
  }
}

TEST_P(CommandsTest, AnUpdateThatReducesTakesWhatAReductionWould) {
  for (int unit : TrainedUnits()) {
    if (unit == 0) continue;
    RunHostOpAction action = HostAction(HostOpKind::kUpdate, unit);
    const wire::HostOp update = Host(action);
    EXPECT_TRUE(update.contributions.empty());
    EXPECT_FALSE(update.want_norm);
    action.blocks = UnitBlocks(unit - 1);
    const wire::HostOp both = Host(action);
    const wire::HostOp reduce = Host(HostOpKind::kReduce, unit);
    EXPECT_EQ(both.kind, HostOpKind::kUpdate);
    EXPECT_EQ(both.weights.offset, update.weights.offset);
    EXPECT_EQ(both.version.value, update.version.value);
    EXPECT_TRUE(both.want_norm);
    EXPECT_EQ(both.total_groups, reduce.total_groups);
    EXPECT_EQ(both.contribution_dtype, reduce.contribution_dtype);
    ASSERT_EQ(both.contributions.size(), reduce.contributions.size());
    for (size_t i = 0; i < both.contributions.size(); ++i) {
      EXPECT_EQ(both.contributions[i].first_group,
                reduce.contributions[i].first_group);
      EXPECT_EQ(both.contributions[i].buffer.offset,
                reduce.contributions[i].buffer.offset);
    }
  }
}

TEST_P(CommandsTest, SlotsReadTheVersionThatTheLastUpdateRaised) {
  std::set<uint32_t> read;
  for (const wire::RunSlot& slot : TrainSlots()) {
    for (const wire::SlotUnit& unit : slot.units) {
      const int index = static_cast<int>(unit.unit);
      const wire::UnitLayout& layout = state_->layout(index);
      EXPECT_EQ(unit.version.value,
                state_->trainable(index) ? kVersion : kBaseVersion);
      EXPECT_EQ(unit.version.offset, layout.version_word_offset);
      EXPECT_EQ(unit.weights.offset, layout.compute_offset);
      EXPECT_EQ(unit.weights.bytes, layout.element_count * 4);
      EXPECT_GE(unit.layer, slot.first_layer);
      EXPECT_LE(unit.layer, slot.last_layer);
      read.insert(unit.unit);
    }
  }
  EXPECT_EQ(read.size(), state_->units().size() - (GetParam().tied ? 0 : 1));
  for (int unit : TrainedUnits()) {
    const wire::HostOp op = Host(HostOpKind::kUpdate, unit);
    EXPECT_EQ(op.unit,
              static_cast<uint32_t>(GetParam().adapters ? unit + 4 : unit));
    EXPECT_EQ(op.version.offset,
              state_->layout(static_cast<int>(op.unit)).version_word_offset);
    EXPECT_EQ(op.version.value, kNextVersion);
    EXPECT_EQ(op.step, 3u);
    EXPECT_EQ(op.learning_rate, 0.5);
    EXPECT_EQ(op.beta1, 0.9);
    EXPECT_EQ(op.beta2, 0.99);
    EXPECT_EQ(op.epsilon, 1e-8);
    EXPECT_EQ(op.weight_decay, 0.1);
    EXPECT_EQ(op.gradient_scale, 0.25f);
    EXPECT_TRUE(op.micro_batches.empty() && op.contributions.empty());
  }
}

TEST_P(CommandsTest, AnEvaluationComputesNoGradient) {
  step_.train = false;
  BlockPool pool;
  boundaries_ = TestRound(buffers_->options().plan, RowGradient::kUnread, 3,
                          pool, RoundKind::kEvaluate);
  const wire::RunSlot forward = Slot(SlotKind::kForward, {0, 1});
  EXPECT_EQ(forward.mode, wire::StepMode::kEvaluate);
  // Only what the evaluating slot reads: no inputs of backward stages.
  ASSERT_EQ(forward.outputs.size(), 3u);
  const wire::RunSlot last = Slot(SlotKind::kEvaluate, {2, 3});
  EXPECT_EQ(last.kind, SlotKind::kEvaluate);
  EXPECT_TRUE(last.outputs.empty());
  EXPECT_TRUE(last.contributions.empty());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(forward.outputs[i].raise.offset,
              last.micro_batches[i].input_ready.offset);
    EXPECT_NE(last.micro_batches[i].labels.offset, 0u);
  }
}

TEST_P(CommandsTest, ExpertsOfASlotsOwnLayersAndMicroBatchesAreCounted) {
  ModelConfig model = state_->options().model;
  model.mixture.expert_count = 4;
  model.mixture.layers.set(0);
  model.mixture.layers.set(2);
  for (int i = 0; i < 3; ++i) {
    auto* const loads =
        arena_->arena().At<ExpertLoad>(buffers_->Loads(1, i), size_t{2} * 4);
    // Layer 0, then layer 2: micro-batch i has i more of the first expert.
    const ExpertLoad counts[] = {ExpertLoad(1 + i), 1, 1, 0, 0, 8, 0, 0};
    std::copy(std::begin(counts), std::end(counts), loads);
  }
  RunSlotAction action;
  action.place.buffer_set = 1;
  ExpertCounts counts;
  const auto add = [&](SlotKind kind, LayerRange layers, IndexRange share) {
    action.kind = kind;
    action.layers = layers;
    action.micro_batches = share;
    counts.Add(action, step_, model, *buffers_, arena_->arena());
  };
  EXPECT_TRUE(counts.Loads().empty());
  add(SlotKind::kForward, {0, 1}, {0, 2});
  EXPECT_EQ(counts.Loads(), (std::vector<LayerLoad>{LoadOf(0, {3, 2, 2, 0})}));
  add(SlotKind::kForward, {0, 1}, {2, 3});
  add(SlotKind::kFused, {2, 3}, {0, 3});
  // What is computed again counts once.
  add(SlotKind::kBackward, {0, 0}, {0, 3});
  EXPECT_EQ(counts.Loads(), (std::vector<LayerLoad>{LoadOf(0, {6, 3, 3, 0}),
                                                    LoadOf(2, {0, 24, 0, 0})}));
  step_.train = false;
  ExpertCounts evaluated;
  evaluated.Add(action, step_, model, *buffers_, arena_->arena());
  EXPECT_TRUE(evaluated.Loads().empty());
}

TEST_P(CommandsTest, ExpertsArePickedOnceForWhoComputesAgain) {
  const wire::RunSlot forward = Slot(SlotKind::kForward, {0, 1});
  EXPECT_EQ(forward.pick_use, wire::PickUse::kWrite);
  const wire::RunSlot backward = Slot(SlotKind::kBackward, {1, 1});
  EXPECT_EQ(backward.pick_use, wire::PickUse::kRead);
  const wire::RunSlot fused = Slot(SlotKind::kFused, {2, 3});
  EXPECT_EQ(fused.pick_use, wire::PickUse::kWrite);
  for (size_t i = 0; i < 3; ++i) {
    const wire::SlotMicroBatch &written = forward.micro_batches[i],
                               &read = backward.micro_batches[i];
    EXPECT_EQ(written.picks.offset, buffers_->Picks(1, static_cast<int>(i)));
    EXPECT_EQ(written.picks.bytes,
              uint64_t{written.rows} * written.row_tokens * 2 * 3 * 2);
    EXPECT_EQ(written.picked.value, kPass);
    EXPECT_EQ(read.picks.offset, written.picks.offset);
    EXPECT_EQ(written.loads_offset, buffers_->Loads(1, static_cast<int>(i)));
    EXPECT_EQ(written.tokens_offset, buffers_->Tokens(1, static_cast<int>(i)));
    EXPECT_EQ(read.loads_offset, 0u);
    EXPECT_EQ(read.tokens_offset, 0u);
    EXPECT_EQ(read.picked.offset, written.picked.offset);
    EXPECT_EQ(fused.micro_batches[i].picked.offset, written.picked.offset);
  }
  // A forward slot that runs again.
  RunSlotAction action;
  action.place.buffer_set = 1;
  action.kind = SlotKind::kForward;
  action.layers = {0, 1};
  action.micro_batches = {0, 3};
  action.boundaries = Boundaries(action);
  for (auto& output : action.boundaries.outputs) {
    output.value = BoundaryValue::kAgain;
  }
  EXPECT_EQ(SlotCommand(action, step_, *state_, *buffers_).pick_use,
            wire::PickUse::kRead);
  step_.train = false;
  EXPECT_EQ(SlotCommand(action, step_, *state_, *buffers_).pick_use,
            wire::PickUse::kNone);
}

TEST_P(CommandsTest, TheBuffersOfTheTwoSetsAreApart) {
  const wire::RunSlot other = Slot(SlotKind::kFused, {2, 3}, 0);
  const wire::RunSlot slot = Slot(SlotKind::kFused, {2, 3});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NE(slot.micro_batches[i].input_ready.offset,
              other.micro_batches[i].input_ready.offset);
    EXPECT_NE(slot.outputs[i].raise.offset, other.outputs[i].raise.offset);
    EXPECT_NE(slot.micro_batches[i].labels.offset,
              other.micro_batches[i].labels.offset);
  }
}

// What a slot's labels and the gather's tokens point at is what FillRound
// wrote.
TEST_P(CommandsTest, FillRoundWritesWhatTheCommandsPointAt) {
  const std::string path = testing::TempDir() + "/commands_test";
  std::filesystem::create_directories(path);
  std::vector<uint32_t> tokens;
  std::vector<uint64_t> offsets = {0};
  for (uint32_t length : {4, 3, 3, 2, 2}) {
    for (uint32_t i = 0; i < length; ++i) tokens.push_back(tokens.size());
    offsets.push_back(tokens.size());
  }
  WriteTestFile(path + "/tokens.u32",
                {reinterpret_cast<char*>(tokens.data()), tokens.size() * 4});
  WriteTestFile(path + "/labels.u8", std::string(tokens.size(), '\1'));
  WriteTestFile(path + "/offsets.u64",
                {reinterpret_cast<char*>(offsets.data()), offsets.size() * 8});
  WriteTestFile(path + "/manifest.json",
                nlohmann::json{{"format_version", 1},
                               {"sequences", 5},
                               {"tokens", tokens.size()},
                               {"target_tokens", 9},
                               {"truncated", 0},
                               {"max_sequence_tokens", 4}}
                    .dump());
  const auto dataset = Dataset::Open(path, 50);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  FillRound(step_.rounds[0], **dataset, 1, *buffers_, arena_->arena());
  const wire::HostOp gather = Host(HostOpKind::kGather);
  const wire::RunSlot fused = Slot(SlotKind::kFused, {2, 3});
  const auto& round = step_.rounds[0];
  for (size_t i = 0; i < 3; ++i) {
    const MicroBatch& data = round.micro_batches[i];
    const size_t count = data.rows.size() * data.row_tokens;
    std::vector<int32_t> want_tokens(count), want_labels(count);
    std::vector<int32_t> want_positions(count);
    for (size_t row = 0; row < data.rows.size(); ++row) {
      (*dataset)->FillRow(data.rows[row], data.row_tokens,
                          want_tokens.data() + row * data.row_tokens,
                          want_labels.data() + row * data.row_tokens,
                          want_positions.data() + row * data.row_tokens);
    }
    auto read = [&](const wire::BufferRef& buffer) {
      EXPECT_EQ(buffer.bytes, count * 4);
      const int32_t* values = arena_->arena().At<int32_t>(buffer.offset, count);
      return std::vector<int32_t>(values, values + count);
    };
    EXPECT_EQ(read(gather.micro_batches[i].tokens), want_tokens);
    EXPECT_EQ(read(fused.micro_batches[i].labels), want_labels);
    EXPECT_EQ(read(fused.micro_batches[i].positions), want_positions);
  }
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace roundhouse
