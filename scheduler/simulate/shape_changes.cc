#include "scheduler/simulate/shape_changes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace roundhouse {
namespace {

class Changes {
 public:
  Changes(const PlanShape& shape, const ShapeLimits& limits)
      : shape_(shape), limits_(limits) {}

  template <typename Change>
  void Add(Change&& change) {
    PlanShape changed = shape_;
    change(changed);
    if (Valid(changed) && !(changed == shape_)) changes_.push_back(changed);
  }

  // Each entry of a list by itself.
  void AddEach(std::vector<int> PlanShape::*list, int step) {
    for (size_t i = 0; i < (shape_.*list).size(); ++i) {
      Add([&](PlanShape& s) { (s.*list)[i] += step; });
    }
  }

  std::vector<PlanShape> Take() { return std::move(changes_); }

 private:
  bool Valid(const PlanShape& shape) const {
    auto width = [this](int w) { return 1 <= w && w <= limits_.devices; };
    auto stage = [this](int n) { return 1 <= n && n <= limits_.layers; };
    auto all = [this](const std::vector<int>& list, auto&& valid) {
      return std::all_of(list.begin(), list.end(), valid) &&
             static_cast<int>(list.size()) <=
                 (limits_.ends ? limits_.layers : 0);
    };
    return 0 <= shape.fused_layers && shape.fused_layers <= limits_.layers &&
           stage(shape.forward_layers) && stage(shape.backward_layers) &&
           all(shape.first_layers, stage) && all(shape.last_layers, stage) &&
           width(shape.widths.forward) && width(shape.widths.fused) &&
           width(shape.widths.backward) && all(shape.first_widths, width) &&
           all(shape.last_widths, width) && shape.look_ahead >= 1 &&
           shape.look_ahead <= limits_.most_look_ahead;
  }

  const PlanShape& shape_;
  const ShapeLimits& limits_;
  std::vector<PlanShape> changes_;
};

// By `slots`, which may be negative, with copies of its last, of an empty list
// with `value`.
void Lengthen(std::vector<int>& list, int slots, int value) {
  if (!list.empty()) value = list.back();
  const int length = static_cast<int>(list.size()) + slots;
  list.resize(std::max(0, length), value);
}

void AddWidths(const PlanShape& shape, int width, const ShapeLimits& limits,
               Changes& changes) {
  changes.Add([&](PlanShape& s) {
    s.widths.forward = width;
    s.forward_layers = std::max(1, s.forward_layers * width / limits.devices);
  });
  changes.Add([&](PlanShape& s) {
    s.widths.forward = width;
    s.forward_layers *= 2;
  });
  for (const size_t longer : {0, 2}) {
    changes.Add([&](PlanShape& s) {
      s.first_widths.assign(shape.first_widths.size() + longer, width);
    });
    changes.Add([&](PlanShape& s) {
      s.last_widths.assign(shape.last_widths.size() + 2 * longer, width);
    });
  }
}

}  // namespace

std::vector<PlanShape> ShapeChanges(const PlanShape& shape,
                                    const ShapeLimits& limits) {
  Changes changes(shape, limits);
  auto add = [&](auto&& change) { changes.Add(change); };
  for (const int step : {1, -1}) {
    add([&](PlanShape& s) { s.fused_layers += step; });
    add([&](PlanShape& s) { s.look_ahead += step; });
    add([&](PlanShape& s) { s.widths.forward += step; });
    add([&](PlanShape& s) { s.widths.backward += step; });
    add([&](PlanShape& s) { s.widths.fused += step; });
    add([&](PlanShape& s) { s.forward_layers += step; });
    add([&](PlanShape& s) { s.backward_layers += step; });
    add([&](PlanShape& s) {
      s.forward_layers += 2 * step;
      s.backward_layers += 2 * step;
    });
    add([&](PlanShape& s) {
      Lengthen(s.first_widths, step, s.widths.forward);
    });
    add([&](PlanShape& s) {
      Lengthen(s.last_widths, 2 * step, s.widths.backward);
    });
  }
  for (const int width : limits.widths) {
    AddWidths(shape, width, limits, changes);
  }
  for (const int step : {1, -1}) {
    changes.AddEach(&PlanShape::first_widths, step);
    changes.AddEach(&PlanShape::last_widths, step);
  }
  add([&](PlanShape& s) { s.balanced = !s.balanced; });
  // Groups of one size are cut the same either way.
  if (limits.micro_batches % shape.groups != 0) {
    add([&](PlanShape& s) { s.by_micro_batches = !s.by_micro_batches; });
  }
  if (limits.groups) {
    add([&](PlanShape& s) { s.groups = limits.micro_batches; });
    add([&](PlanShape& s) {
      s.groups = std::min(limits.devices, limits.micro_batches);
    });
  }
  return changes.Take();
}

std::vector<PlanShape> EndChanges(const PlanShape& shape,
                                  const ShapeLimits& limits) {
  if (!limits.ends) return {};
  Changes changes(shape, limits);
  auto add = [&](auto&& change) { changes.Add(change); };
  const std::vector<int> ramps[] = {{1}, {2}, {1, 1}, {1, 2}};
  for (const std::vector<int>& ramp : ramps) {
    add([&](PlanShape& s) { s.first_layers = ramp; });
    add([&](PlanShape& s) { s.last_layers = ramp; });
    add([&](PlanShape& s) { s.first_layers = s.last_layers = ramp; });
  }
  for (const int step : {1, -1}) {
    add([&](PlanShape& s) { Lengthen(s.first_layers, step, 1); });
    add([&](PlanShape& s) { Lengthen(s.last_layers, step, 1); });
    changes.AddEach(&PlanShape::first_layers, step);
    changes.AddEach(&PlanShape::last_layers, step);
    add([&](PlanShape& s) { s.look_ahead += step; });
    add([&](PlanShape& s) { s.forward_layers += step; });
    add([&](PlanShape& s) { s.backward_layers += step; });
  }
  for (const int longer : {1, 2}) {
    add([&](PlanShape& s) { s.fused_layers += longer; });
  }
  return changes.Take();
}

}  // namespace roundhouse
