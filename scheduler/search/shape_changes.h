// Plan shapes that differ from one in one thing, or in a few that go together:
// what a search tries next.
//
// Pure functions; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_SHAPE_CHANGES_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_SHAPE_CHANGES_H_

#include <optional>
#include <random>
#include <vector>

#include "scheduler/search/plan_shape.h"

namespace roundhouse {

struct ShapeLimits {
  int layers = 1;  // decoder blocks
  int devices = 1;
  int micro_batches = 1;
  int most_look_ahead = 1;
  bool ends = true;    // whether slots at the ends may differ from the others
  bool groups = true;  // whether their number may change
  bool equal_devices = true;
  std::vector<int> widths;  // to try for all slots of a direction
};

// Everything but the lengths of the stages at the ends.
std::vector<PlanShape> ShapeChanges(const PlanShape& shape,
                                    const ShapeLimits& limits);

// Other lengths of the stages at the ends, and what they make room for. None
// without `ends`.
std::vector<PlanShape> EndChanges(const PlanShape& shape,
                                  const ShapeLimits& limits);

// One change, drawn of very many: of a few stages, their slots' widths, the
// fused tail or the look-ahead. Nothing if it cannot be made. REQUIRES: `shape`
// is SpelledOut.
std::optional<PlanShape> DrawnChange(const PlanShape& shape,
                                     const ShapeLimits& limits,
                                     std::mt19937& random);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_SHAPE_CHANGES_H_
