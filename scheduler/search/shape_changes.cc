#include "scheduler/search/shape_changes.h"

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

// Changes of a direction's stages, at places that are drawn.
class DrawnStages {
 public:
  DrawnStages(std::vector<int>& lengths, std::vector<int>& widths,
              std::mt19937& random)
      : lengths_(lengths), widths_(widths), random_(random) {}

  void Shift(int layers) {
    if (lengths_.size() < 2) return;
    const size_t stage = Draw(lengths_.size() - 1);
    lengths_[stage] += layers;
    lengths_[stage + 1] -= layers;
  }

  void Merge() {
    if (lengths_.size() < 2) return;
    const size_t stage = Draw(lengths_.size() - 1);
    lengths_[stage] += lengths_[stage + 1];
    Erase(lengths_, stage + 1);
    Erase(widths_, stage + 1);
  }

  void Split() {
    if (lengths_.empty()) return;
    const size_t stage = Draw(lengths_.size());
    if (lengths_[stage] < 2) return;
    const int first = 1 + static_cast<int>(Draw(lengths_[stage] - 1));
    Insert(lengths_, stage, first);
    lengths_[stage + 1] -= first;
    Insert(widths_, stage, widths_[stage]);
  }

  void Widen(int devices) {
    if (!widths_.empty()) widths_[Draw(widths_.size())] += devices;
  }

  void SetWidths(int devices) {
    if (widths_.empty()) return;
    const size_t begin = random_() % 2 == 0 ? 0 : Draw(widths_.size());
    const size_t end = begin + 1 + Draw(widths_.size() - begin);
    const int width = 1 + static_cast<int>(Draw(devices));
    std::fill(widths_.begin() + static_cast<ptrdiff_t>(begin),
              widths_.begin() + static_cast<ptrdiff_t>(end), width);
  }

 private:
  // Below `count`.
  size_t Draw(size_t count) { return random_() % count; }
  static void Erase(std::vector<int>& list, size_t place) {
    list.erase(list.begin() + static_cast<ptrdiff_t>(place));
  }
  static void Insert(std::vector<int>& list, size_t place, int value) {
    list.insert(list.begin() + static_cast<ptrdiff_t>(place), value);
  }

  std::vector<int>& lengths_;
  std::vector<int>& widths_;
  std::mt19937& random_;
};

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
  if (!limits.equal_devices) {
    add([&](PlanShape& s) { s.slow_share = !s.slow_share; });
  }
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
  // Two at a time, as in ShapeChanges, gain nothing where more would.
  for (const int width : limits.widths) {
    add([&](PlanShape& s) { s.first_widths.assign(limits.layers / 3, width); });
  }
  return changes.Take();
}

std::optional<PlanShape> DrawnChange(const PlanShape& shape,
                                     const ShapeLimits& limits,
                                     std::mt19937& random) {
  Changes changes(shape, limits);
  const bool forward = random() % 2 == 0;
  changes.Add([&](PlanShape& s) {
    DrawnStages stages(forward ? s.first_layers : s.last_layers,
                       forward ? s.first_widths : s.last_widths, random);
    const int sign = random() % 2 == 0 ? 1 : -1;
    switch (random() % 10) {
      case 0:
        s.fused_layers += sign;
        break;
      case 1:
        s.look_ahead += sign;
        break;
      case 2:
        stages.Widen(sign);
        break;
      case 3:
        stages.SetWidths(limits.devices);
        break;
      case 4:
        stages.Merge();
        break;
      case 5:
      case 6:
        stages.Split();
        break;
      default:
        stages.Shift(sign);
    }
  });
  std::vector<PlanShape> changed = changes.Take();
  if (changed.empty()) return std::nullopt;
  return SpelledOut(changed.front(), limits.layers);
}

}  // namespace roundhouse
