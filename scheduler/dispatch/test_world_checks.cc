// World: what every slot and host operation must find, whatever came before it.
#include <algorithm>

#include "gtest/gtest.h"
#include "scheduler/dispatch/test_world.h"

namespace roundhouse {

std::vector<int> World::UnitsOf(const RunSlotAction& slot) const {
  std::vector<int> units;
  if (slot.kind != SlotKind::kFused && slot.kind != SlotKind::kBackward) {
    return units;
  }
  if (slot.layers.first == 0) units.push_back(0);
  for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
    units.push_back(1 + layer);
  }
  if (shape_.tied_head && slot.layers.last == shape_.layer_count - 1) {
    units.push_back(shape_.head_share());
  }
  return units;
}

std::vector<int> World::SumsOf(const RunHostOpAction& op) const {
  if (op.unit > 0) return {op.unit};
  std::vector<int> sums;
  if (!op.blocks.empty()) sums.push_back(shape_.head_share());
  if (op.rows) sums.push_back(0);
  return sums;
}

// What it read is still what it is to read, when it ends.
void World::CheckInputs(const RunSlotAction& slot) {
  const auto check = [&](BoundaryValue value, int boundary,
                         const std::vector<int>& blocks) {
    EXPECT_EQ(blocks.size(), static_cast<size_t>(slot.micro_batches.size()));
    for (int64_t m = slot.micro_batches.begin; m < slot.micro_batches.end;
         ++m) {
      CheckRead({slot.job, slot.place.step_number, slot.place.round, value,
                 boundary, m},
                blocks.at(m - slot.micro_batches.begin));
    }
  };
  check(slot.boundaries.input, slot.layers.first, slot.boundaries.inputs);
  if (slot.kind != SlotKind::kBackward) return;
  check(BoundaryValue::kGradient, slot.layers.last + 1,
        slot.boundaries.gradients);
}

void World::CheckRead(const BoundaryKey& key, int block) {
  const auto found = memory_.find({std::get<0>(key), block});
  ASSERT_NE(found, memory_.end()) << "block " << block;
  EXPECT_EQ(found->second, key) << "block " << block << " is another's";
}

// Blocks of sums that are not reduced are nobody else's.
void World::CheckBlocks(const RunSlotAction& slot) {
  size_t layers = 0;
  for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
    if (shape_.Trains(1 + layer)) ++layers;
  }
  if (layers == 0) return;
  EXPECT_GE(slot.blocks.size(), layers);
  EXPECT_EQ(slot.blocks.size() % layers, 0u);
  size_t next = 0;
  for (int layer = slot.layers.first; layer <= slot.layers.last; ++layer) {
    if (!shape_.Trains(1 + layer)) continue;
    const bool head = layer == shape_.layer_count - 1;
    // They may be somebody else's by now.
    const bool down = std::find(slot.units_down.begin(), slot.units_down.end(),
                                1 + layer) != slot.units_down.end();
    for (size_t i = 0; i < slot.blocks.size() / layers; ++i) {
      const int block = slot.blocks[next++];
      if (down) continue;
      const auto [use, added] = blocks_.try_emplace(
          {slot.job, head, block},
          BlockUse{slot.slot, slot.place.step_number, slot.place.round, layer,
                   slot.micro_batches.begin});
      EXPECT_EQ(use->second.slot, slot.slot) << "a block of two slots";
    }
  }
}

void World::FreeBlocks(const RunHostOpAction& op) {
  EXPECT_TRUE(op.unit > 0 || shape_.tied_head || op.blocks.empty());
  if (op.unit == 0 && op.blocks.empty()) return;
  const int head = shape_.layer_count - 1;
  const int layer = op.unit == 0 ? head : op.unit - 1;
  size_t used = 0;
  for (const auto& [key, use] : blocks_) {
    if (std::get<0>(key) == op.job && use.step == op.step_number &&
        use.round == op.round && use.layer == layer) {
      ++used;
    }
  }
  EXPECT_EQ(op.blocks.size(), used);
  // A tied head's sums are of two units.
  const int other = op.unit == 0 ? 1 + head : shape_.head_share();
  const bool last =
      layer != head || !shape_.tied_head || !shape_.Trains(other) ||
      reduces_.count({op.job, op.step_number, op.round, other}) != 0;
  int64_t micro_batch = 0;
  for (const int block : op.blocks) {
    const auto use = blocks_.find({op.job, layer == head, block});
    if (use == blocks_.end()) {
      ADD_FAILURE() << "block " << block << " is in no use";
      continue;
    }
    EXPECT_EQ(use->second.layer, layer);
    EXPECT_EQ(use->second.step, op.step_number);
    EXPECT_EQ(use->second.round, op.round);
    // As their groups, in whatever order parts were sent.
    EXPECT_GE(use->second.micro_batch, micro_batch);
    micro_batch = use->second.micro_batch;
    if (last) blocks_.erase(use);
  }
}

bool World::ContributorsAreDone(const RunHostOpAction& op, int sum) {
  return std::all_of(sent.begin(), sent.end(), [&](const RunSlotAction& slot) {
    const std::vector<int> units = UnitsOf(slot);
    return slot.job != op.job || slot.place.step_number != op.step_number ||
           std::find(units.begin(), units.end(), sum) == units.end() ||
           committed_.count(slot.slot) != 0;
  });
}

void World::CheckUpdate(const RunHostOpAction& op) {
  EXPECT_TRUE(shape_.Trains(op.unit)) << "unit " << op.unit;
  // A replay must read the weights that its slot read before.
  EXPECT_TRUE(ContributorsAreDone(op, op.unit)) << "unit " << op.unit;
  if (op.unit > 0) return;
  EXPECT_TRUE(ContributorsAreDone(op, shape_.head_share()));
}

void World::CheckReduce(const RunHostOpAction& op) {
  EXPECT_TRUE(shape_.Trains(op.unit)) << "unit " << op.unit << " is frozen";
  const std::vector<int> sums = SumsOf(op);
  EXPECT_FALSE(sums.empty());
  EXPECT_EQ(op.row_blocks.empty(), !op.rows);
  for (size_t m = 0; m < op.row_blocks.size(); ++m) {
    CheckRead({op.job, op.step_number, op.round, BoundaryValue::kGradient, 0,
               static_cast<int64_t>(m)},
              op.row_blocks[m]);
  }
  EXPECT_EQ(op.add_to_sum,
            op.round > 0 || (shape_.tied_head && sums == std::vector<int>{0}));
  for (const int sum : sums) CheckSum(op, sum);
  if (op.unit == 0 && shape_.tied_head) {
    // The head's share comes first: the order of addition is the job's.
    EXPECT_EQ(
        reduces_.count({op.job, op.step_number, op.round, shape_.head_share()}),
        1u);
    if (sums == std::vector<int>{0}) ++split_reductions;
  }
  // The sum is of the step before until that is updated.
  const std::pair<JobId, uint64_t> before = {op.job, op.step_number - 1};
  if (op.step_number > 0 && specs_[before].train &&
      dropped_.count(before) == 0) {
    EXPECT_EQ((updates_of_[{op.job, op.step_number - 1, op.unit}]), 1)
        << "unit " << op.unit << " of step " << op.step_number;
  }
  if (op.round > 0) {
    EXPECT_EQ(reduces_.count({op.job, op.step_number, op.round - 1, op.unit}),
              1u);
  }
}

void World::CheckSum(const RunHostOpAction& op, int sum) {
  EXPECT_TRUE(reduces_.insert({op.job, op.step_number, op.round, sum}).second);
  if (!ContributorsAreDone(op, sum)) ++early_reductions;
  const int count =
      specs_[{op.job, op.step_number}].round_micro_batches[op.round];
  for (int64_t m = 0; m < count; ++m) {
    EXPECT_EQ(contributed_.count({op.job, op.step_number, op.round, sum, m}),
              1u)
        << "unit " << sum << " has no gradient of micro-batch " << m;
  }
}

}  // namespace roundhouse
