// The plans that a search (step_search.h) begins with and may come to: its
// widths, groups and lengths of stages, as far as machine and options allow.
//
// Pure; thread-safe; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SEARCH_SEARCH_SHAPES_H_
#define ROUNDHOUSE_SCHEDULER_SEARCH_SEARCH_SHAPES_H_

#include <vector>

#include "scheduler/plan/machine.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/part_time.h"
#include "scheduler/search/plan_shape.h"
#include "scheduler/search/shape_changes.h"
#include "scheduler/search/step_search.h"

namespace roundhouse {

class SearchShapes {
 public:
  // All but `micro_batches` outlive it.
  SearchShapes(const ModelCosts& costs, const Machine& machine,
               int micro_batches, const SearchOptions& options)
      : costs_(costs),
        machine_(machine),
        micro_batches_(micro_batches),
        options_(options) {}

  // Block by block at the greatest width.
  PlanShape AllWide() const;
  // A few widths and lengths of stages before and after so long a tail.
  std::vector<PlanShape> OfTail(int tail) const;
  // What no estimate leads to, of any tail: Ramped or, for unequal devices,
  // WithSlowShares.  None without uneven slots.
  std::vector<PlanShape> FarStarts() const;
  // What changes of a shape keep to.
  ShapeLimits Limits() const;
  // Whether Ideas have such slots.
  bool IdeasAllow(const StepPlan& plan) const;

 private:
  int Devices() const { return machine_.device_count(); }
  // At the greatest width, with short stages at the ends: what devices wait for
  // while layer 0 turns around is then short on all of them.  None for few
  // layers.
  std::vector<PlanShape> Ramped() const;
  // With a small share for the slowest device in each forward slot.
  std::vector<PlanShape> WithSlowShares() const;
  bool AllowsWidth(int width) const;
  std::vector<int> WidthsToTry() const;
  std::vector<int> StageLengths() const;
  std::vector<int> GroupsToTry() const;

  const ModelCosts& costs_;
  const Machine& machine_;
  const int micro_batches_;
  const SearchOptions& options_;
};

// Whether both have the same tail, widths and ends, and stages of one layer, or
// of more.
bool SameKind(const PlanShape& a, const PlanShape& b);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SEARCH_SEARCH_SHAPES_H_
