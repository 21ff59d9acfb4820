#include "scheduler/plan/boundary_tensors.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/work_kinds.h"

namespace roundhouse {
namespace {

class MapMaker {
 public:
  MapMaker(const Plan& plan, RoundKind round, RowGradient rows)
      : plan_(plan), round_(round), rows_(rows) {}

  BoundaryMap Make() && {
    Add(BoundaryValue::kActivation, 0, kRowsSlot);
    const std::vector<PlanSlot> slots = SlotsOf(plan_);
    FindWritten(slots);
    for (const PlanSlot& slot : slots) {
      if (slot.kind == SlotKind::kForward) {
        AddForward(slot);
      } else {
        AddBackward(slot.layers);
        if (round_ == RoundKind::kEvaluate) break;  // after the fused one
      }
    }
    return std::move(map_);
  }

 private:
  int Add(BoundaryValue value, int boundary, int writer) {
    map_.tensors.push_back({value, boundary, writer});
    return static_cast<int>(map_.tensors.size()) - 1;
  }

  int slot() const { return static_cast<int>(map_.slots.size()); }

  int Read(int tensor) {
    ++map_.tensors[tensor].readers;
    map_.tensors[tensor].last_reader = slot();
    return tensor;
  }

  // The input of the layer, which was written last.
  int Input(int layer) const {
    for (int i = static_cast<int>(map_.tensors.size()) - 1;; --i) {
      const BoundaryTensor& tensor = map_.tensors[i];
      if (tensor.value != BoundaryValue::kGradient &&
          tensor.boundary == layer) {
        return i;
      }
    }
  }

  // Which boundaries are written for a backward slot, and in which pass.
  void FindWritten(const std::vector<PlanSlot>& slots) {
    if (round_ == RoundKind::kEvaluate) return;
    for (const LayerRange& stage : plan_.backward) {
      written_[stage.first] = BoundaryValue::kActivation;
    }
    for (const PlanSlot& slot : slots) {
      if (!slot.again) continue;
      for (int b = slot.layers.first + 1; b <= slot.layers.last + 1; ++b) {
        const auto found = written_.find(b);
        if (found != written_.end()) found->second = BoundaryValue::kAgain;
      }
    }
  }

  void AddForward(const PlanSlot& forward) {
    const LayerRange& stage = forward.layers;
    const BoundaryValue value =
        forward.again ? BoundaryValue::kAgain : BoundaryValue::kActivation;
    BoundaryMap::SlotTensors tensors;
    tensors.input = Read(Input(stage.first));
    // Beside its own end, the inputs of backward stages that begin inside.
    for (auto at = written_.upper_bound(stage.first);
         at != written_.end() && at->first <= stage.last; ++at) {
      if (at->second != value) continue;
      tensors.outputs.push_back(Add(value, at->first, slot()));
    }
    tensors.outputs.push_back(Add(value, stage.last + 1, slot()));
    map_.slots.push_back(std::move(tensors));
  }

  void AddBackward(const LayerRange& stage) {
    BoundaryMap::SlotTensors tensors;
    tensors.input = Read(Input(stage.first));
    if (given_.has_value()) tensors.gradient = Read(*given_);
    given_.reset();
    const bool read = stage.first > 0 || rows_ == RowGradient::kRead;
    if (round_ == RoundKind::kTrain && read) {
      given_ = Add(BoundaryValue::kGradient, stage.first, slot());
      tensors.outputs.push_back(*given_);
    }
    map_.slots.push_back(std::move(tensors));
    if (stage.first > 0 || !given_.has_value()) return;
    map_.row_gradient = Read(*given_);
  }

  const Plan& plan_;
  const RoundKind round_;
  const RowGradient rows_;
  BoundaryMap map_;
  std::map<int, BoundaryValue> written_;
  std::optional<int> given_;  // by the backward slot before
};

// Per slot: blocks that it takes, and those that are taken before it when all
// slots before it have committed.
struct SlotBlocks {
  int64_t taken = 0;
  int64_t held = 0;
};

std::vector<SlotBlocks> BlocksOfSlots(const BoundaryMap& map) {
  std::vector<SlotBlocks> slots(map.slots.size());
  std::vector<int64_t> freed(map.slots.size() + 1);  // by each slot's end
  for (const BoundaryTensor& tensor : map.tensors) {
    // The rows are taken with the first slot.
    ++slots[std::max(tensor.writer, 0)].taken;
    ++freed[tensor.last_reader];
  }
  for (size_t slot = 1; slot < slots.size(); ++slot) {
    const SlotBlocks& before = slots[slot - 1];
    slots[slot].held = before.held + before.taken - freed[slot - 1];
  }
  return slots;
}

}  // namespace

BoundaryMap MapOf(const Plan& plan, RoundKind round, RowGradient rows) {
  return MapMaker(plan, round, rows).Make();
}

int64_t LeastBoundaryTensors(const BoundaryMap& map) {
  int64_t least = 0;
  for (const SlotBlocks& slot : BlocksOfSlots(map)) {
    least = std::max(least, slot.held + slot.taken);
  }
  return least;
}

int64_t LeastBoundaryTensors(const Plan& plan, RowGradient rows) {
  return LeastBoundaryTensors(MapOf(plan, RoundKind::kTrain, rows));
}

int64_t BoundaryTensors(const Plan& plan, RowGradient rows, int most_sent) {
  const BoundaryMap map = MapOf(plan, RoundKind::kTrain, rows);
  const std::vector<SlotBlocks> slots = BlocksOfSlots(map);
  const size_t count = slots.size();
  const auto width = [&](size_t slot) {
    return plan.split.empty() ? size_t{1} : plan.split[slot % count].size();
  };
  int64_t most = 0;
  size_t end = 0;  // of the window that begins at `first`
  size_t parts = 0;
  int64_t taken = 0;
  for (size_t first = 0; first < count; ++first) {
    // Two rounds run at a time.
    while (parts < static_cast<size_t>(most_sent) && end < 2 * count) {
      parts += width(end);
      taken += slots[end++ % count].taken;
    }
    most = std::max(most, slots[first].held + taken);
    parts -= width(first);
    taken -= slots[first].taken;
  }
  const auto both = static_cast<int64_t>(2 * map.tensors.size());
  return std::min(both, most + (map.row_gradient.has_value() ? 1 : 0));
}

int64_t FittingTensors(int64_t room, const Plan& plan, RowGradient rows,
                       int most_sent) {
  const int64_t most = BoundaryTensors(plan, rows, most_sent);
  if (room >= most) return most;
  return std::max(room, BoundaryTensors(plan, rows, kLeastSlotsAhead));
}

}  // namespace roundhouse
