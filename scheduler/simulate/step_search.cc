#include "scheduler/simulate/step_search.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "scheduler/simulate/baselines.h"
#include "scheduler/simulate/device_memory.h"
#include "scheduler/simulate/part_feed.h"
#include "scheduler/simulate/shape_changes.h"
#include "scheduler/simulate/step_bound.h"
#include "scheduler/simulate/step_estimate.h"

namespace roundhouse {
namespace {

// Tails whose plans are improved by estimate, then simulated.
constexpr size_t kRanked = 6;
constexpr size_t kWidthsRanked = 4;
// A change whose estimate is this much worse is not simulated.
constexpr double kWorthSimulating = 1.02;
// Of consecutive steps with other ends: simulated before these are taken.
constexpr int kSettledSteps = 6;

struct Candidate {
  PlanShape shape;
  double estimate_ns = 0;
  double step_ns = 0;  // simulated
};

// A stale update shows in the step after the next.
int SimulatedSteps(const SearchOptions& options) {
  if (options.updates == Updates::kNone) return 1;
  return options.updates == Updates::kStale ? 3 : 2;
}

int RoundsOfStep(const SearchOptions& options) {
  return std::min(options.rounds, 2);
}

int SimulatedRounds(const SearchOptions& options) {
  return SimulatedSteps(options) * RoundsOfStep(options);
}

// When the first `micro_batches` of the step are computed.
int64_t ComputedNs(const Schedule& schedule, int step, int micro_batches) {
  int64_t end_ns = 0;
  for (const Interval& interval : schedule.intervals) {
    if (interval.step == step && IsCompute(interval.kind) &&
        interval.micro_batch < micro_batches) {
      end_ns = std::max(end_ns, interval.end_ns);
    }
  }
  return end_ns;
}

// The last step's share of the time; a step's further rounds take as long as
// its second.
int64_t SteadyStepNs(const Schedule& schedule, int micro_batches,
                     const SearchOptions& options) {
  const int last = SimulatedSteps(options) - 1;
  const int rounds = RoundsOfStep(options);
  const int64_t step_ns =
      ComputedNs(schedule, last, rounds * micro_batches) -
      ComputedNs(schedule, last - 1, rounds * micro_batches);
  if (options.rounds <= rounds) return step_ns;
  return step_ns + (options.rounds - rounds) *
                       (ComputedNs(schedule, last, 2 * micro_batches) -
                        ComputedNs(schedule, last, micro_batches));
}

StepOptions StepOf(const SearchOptions& options) {
  StepOptions step;
  step.contributions = options.contributions;
  step.split_at_rates = false;
  step.ideas = options.ideas;
  return step;
}

// REQUIRES: not an isolated step.
absl::StatusOr<Schedule> SimulateFew(const ModelCosts& costs,
                                     const Machine& machine,
                                     const StepPlan& plan, int micro_batches,
                                     int steps, const SearchOptions& options) {
  StepsOptions few;
  few.step = StepOf(options);
  few.steps = steps;
  few.rounds = RoundsOfStep(options);
  few.updates = options.updates;
  return SimulateSteps(costs, machine, plan, micro_batches, few);
}

class Search {
 public:
  Search(const ModelCosts& costs, const Machine& machine, int micro_batches,
         const SearchOptions& options)
      : costs_(costs),
        machine_(machine),
        micro_batches_(micro_batches),
        options_(options),
        work_left_(options.work) {}

  absl::StatusOr<SearchResult> Run() {
    std::vector<Candidate> best = RankTails();
    if (best.empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no plan of ", costs_.name, " fits: ", misfit_));
    }
    const int64_t share =
        options_.rank_work / static_cast<int64_t>(best.size());
    for (Candidate& candidate : best) {
      work_left_ = share;
      Improve(candidate, &Search::EstimatesShorter, ShapeChanges);
    }
    work_left_ = options_.work;
    // No plan may be slower than this one, however wrong the estimates are.
    const PlanShape all_wide = AllWide();
    const std::optional<double> estimate_ns = Estimate(all_wide);
    if (estimate_ns.has_value()) best.push_back({all_wide, *estimate_ns});
    for (Candidate& candidate : best) Simulate(candidate);
    KeepBest(best, 1, &Candidate::step_ns);
    Improve(best.front(), &Search::SimulatesShorter, ShapeChanges);
    work_left_ += options_.ends_work;
    const Candidate found = WithBetterEnds(best.front());
    SearchResult result;
    result.shape = found.shape;
    result.plan = ShapePlan(result.shape, costs_, machine_, micro_batches_);
    result.step_ns = static_cast<int64_t>(found.step_ns);
    result.ranked = ranked_;
    result.simulated = simulated_;
    return result;
  }

 private:
  using Trial = bool (Search::*)(const PlanShape&, Candidate&);
  using Changes = std::vector<PlanShape> (*)(const PlanShape&,
                                             const ShapeLimits&);

  // The best `count` different ones, best first.
  static void KeepBest(std::vector<Candidate>& candidates, size_t count,
                       double Candidate::*time) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [time](const Candidate& a, const Candidate& b) {
                       return a.*time < b.*time;
                     });
    std::vector<Candidate> kept;
    for (const Candidate& candidate : candidates) {
      const bool known =
          std::any_of(kept.begin(), kept.end(), [&](const Candidate& other) {
            return other.shape == candidate.shape;
          });
      if (!known && kept.size() < count) kept.push_back(candidate);
    }
    candidates = std::move(kept);
  }

  int Devices() const { return machine_.device_count(); }

  // N, N/2, N/3, ... without repeats, at most as many as micro-batches.
  std::vector<int> WidthsToTry() const {
    std::vector<int> widths;
    for (int share = 1; share <= Devices(); ++share) {
      const int width =
          std::min((Devices() + share - 1) / share, micro_batches_);
      if (!AllowsWidth(width)) continue;
      if (widths.empty() || widths.back() != width) widths.push_back(width);
    }
    return widths;
  }

  ShapeLimits Limits() const {
    ShapeLimits limits;
    limits.layers = costs_.layers;
    limits.devices = Devices();
    limits.micro_batches = micro_batches_;
    limits.most_look_ahead = options_.most_look_ahead;
    limits.ends = options_.ideas.uneven;
    limits.groups = options_.groups == 0;
    limits.widths = WidthsToTry();
    return limits;
  }

  bool AllowsWidth(int width) const {
    if (!options_.ideas.width) return width == 1;
    return options_.ideas.uneven || micro_batches_ % width == 0;
  }

  // The lengths of the fused tail that promise most, each with the best of a
  // few widths and stages.
  std::vector<Candidate> RankTails() {
    std::vector<Candidate> best;
    for (int tail = 0; tail <= costs_.layers;
         tail = std::max(tail + 1, tail * 4 / 3)) {
      std::vector<Candidate> candidates;
      for (const PlanShape& shape : ShapesOfTail(tail)) {
        const std::optional<double> estimate_ns = Estimate(shape);
        if (estimate_ns.has_value())
          candidates.push_back({shape, *estimate_ns});
      }
      // A longer tail needs more memory still, but fewer activations between
      // stages.
      if (candidates.empty() && tail > 0 && options_.accepts == nullptr) break;
      KeepBest(candidates, 1, &Candidate::estimate_ns);
      best.insert(best.end(), candidates.begin(), candidates.end());
    }
    KeepBest(best, kRanked, &Candidate::estimate_ns);
    return best;
  }

  std::vector<PlanShape> ShapesOfTail(int tail) const {
    std::vector<PlanShape> shapes;
    PlanShape shape = AllWide();
    shape.fused_layers = tail;
    std::vector<int> widths = WidthsToTry();
    if (widths.size() > kWidthsRanked) widths.resize(kWidthsRanked);
    for (const int layers : StageLengths()) {
      for (const int forward : widths) {
        for (const int backward : widths) {
          shape.forward_layers = shape.backward_layers = layers;
          shape.widths.forward = forward;
          shape.widths.backward = backward;
          for (const int groups : GroupsToTry()) {
            shape.groups = groups;
            shapes.push_back(shape);
          }
        }
      }
    }
    return shapes;
  }

  // Longer stages keep fewer activations: who refuses plans may want those.
  std::vector<int> StageLengths() const {
    std::vector<int> lengths = {1, 4};
    const int share = costs_.layers / Devices();
    if (options_.accepts != nullptr && share > 4) lengths.push_back(share);
    return lengths;
  }

  // Fewer groups need less memory for their sums.
  std::vector<int> GroupsToTry() const {
    if (options_.groups > 0) return {options_.groups};
    const int all = AllWide().groups;
    const int fewer = std::min(Devices(), micro_batches_);
    if (EqualDevices() || fewer == all) return {all};
    return {all, fewer};
  }

  // Block by block at the greatest width.
  PlanShape AllWide() const {
    int width = std::min(Devices(), micro_batches_);
    while (!AllowsWidth(width)) --width;
    PlanShape shape;
    shape.widths = {width, width, width};
    // Unequal shares need groups to cut at.
    shape.groups = options_.groups > 0 ? options_.groups
                   : EqualDevices()    ? width
                                       : micro_batches_;
    shape.balanced = !EqualDevices();
    return shape;
  }

  bool EqualDevices() const {
    return std::all_of(machine_.devices.begin(), machine_.devices.end(),
                       [this](const SimulatedDevice& device) {
                         return device == machine_.devices[0];
                       });
  }

  // Nothing when it does not fit.
  std::optional<double> Estimate(const PlanShape& shape) {
    const StepPlan plan = ShapePlan(shape, costs_, machine_, micro_batches_);
    if (!IdeasAllow(plan)) return std::nullopt;
    const std::vector<Part> parts = PartsOf(plan, micro_batches_);
    std::vector<int> devices;
    const absl::Status fits = CheckMemory(parts, plan.look_ahead, devices);
    if (!fits.ok()) {
      if (misfit_.empty()) misfit_ = std::string(fits.message());
      return std::nullopt;
    }
    if (options_.accepts != nullptr && !options_.accepts(plan)) {
      if (misfit_.empty()) misfit_ = "whoever is to run it refuses it";
      return std::nullopt;
    }
    ++ranked_;
    work_left_ -= WorkOf(parts);
    const double step_ns =
        EstimateStepNs(parts, devices, costs_, machine_, micro_batches_,
                       plan.look_ahead, options_.contributions);
    if (options_.updates == Updates::kNone) return step_ns;
    const BoundOptions bound{micro_batches_, options_.rounds, options_.updates,
                             options_.contributions};
    return EstimateStepsNs(parts, step_ns, costs_, machine_, bound);
  }

  // Also where a round follows a round.  Says which devices run the parts of
  // the first.
  absl::Status CheckMemory(const std::vector<Part>& parts, int look_ahead,
                           std::vector<int>& devices) const {
    if (SimulatedRounds(options_) == 1) {
      devices = AssignDevices(parts, costs_, machine_);
      return CheckDeviceMemory(parts, devices, costs_, machine_, look_ahead);
    }
    const std::vector<Part> rounds = RepeatedParts(parts, 2, micro_batches_);
    devices = AssignDevices(rounds, costs_, machine_);
    const absl::Status fits =
        CheckDeviceMemory(rounds, devices, costs_, machine_, look_ahead);
    devices.resize(parts.size());
    return fits;
  }

  bool IdeasAllow(const StepPlan& plan) const {
    for (const auto& shares : plan.shares) {
      if (!options_.ideas.width && shares.size() > 1) return false;
      if (options_.ideas.uneven) continue;
      for (const IndexRange& share : shares) {
        if (share.size() != shares.front().size()) return false;
      }
    }
    return true;
  }

  static int64_t WorkOf(const std::vector<Part>& parts) {
    int64_t work = 0;
    for (const Part& part : parts) {
      work += part.micro_batches.size() + part.layers.layer_count();
    }
    return work;
  }

  void Simulate(Candidate& candidate) {
    const StepPlan plan =
        ShapePlan(candidate.shape, costs_, machine_, micro_batches_);
    work_left_ -=
        WorkOf(PartsOf(plan, micro_batches_)) * SimulatedRounds(options_);
    ++simulated_;
    const auto step_ns =
        SimulatedStepNs(costs_, machine_, plan, micro_batches_, options_);
    ROUNDHOUSE_CHECK(step_ns.ok()) << step_ns.status();
    candidate.step_ns = static_cast<double>(*step_ns);
  }

  // Changes one thing after the other, first come first kept, until nothing
  // helps or the work is used up.
  void Improve(Candidate& best, Trial trial, Changes changes) {
    bool better = true;
    while (better) {
      better = false;
      for (const PlanShape& shape : changes(best.shape, Limits())) {
        if (work_left_ <= 0) return;
        better |= (this->*trial)(shape, best);
      }
    }
  }

  Candidate WithBetterEnds(const Candidate& best) {
    Candidate changed = best;
    ImproveEnds(changed);
    const bool isolated = options_.updates == Updates::kNone;
    if (isolated || changed.shape == best.shape) return changed;
    return SettledNs(changed) < SettledNs(best) ? changed : best;
  }

  // One step more is not what many take: the ends are where steps meet.
  int64_t SettledNs(const Candidate& candidate) {
    const StepPlan plan =
        ShapePlan(candidate.shape, costs_, machine_, micro_batches_);
    ++simulated_;
    const auto schedule = SimulateFew(costs_, machine_, plan, micro_batches_,
                                      kSettledSteps, options_);
    ROUNDHOUSE_CHECK(schedule.ok()) << schedule.status();
    const int all = RoundsOfStep(options_) * micro_batches_;
    return ComputedNs(*schedule, kSettledSteps - 1, all) -
           ComputedNs(*schedule, 0, all);
  }

  // As Improve, but each change from the best so far, what promises most first:
  // changes at the ends go together.
  void ImproveEnds(Candidate& best) {
    std::vector<PlanShape> tried;
    bool better = true;
    while (better) {
      better = false;
      for (Candidate& changed : EndsByEstimate(best.shape)) {
        if (work_left_ <= 0) return;
        const bool known =
            std::find(tried.begin(), tried.end(), changed.shape) != tried.end();
        if (known || !WorthSimulating(changed, best)) continue;
        tried.push_back(changed.shape);
        Simulate(changed);
        better = changed.step_ns < best.step_ns;
        if (!better) continue;
        best = changed;
        break;
      }
    }
  }

  std::vector<Candidate> EndsByEstimate(const PlanShape& best) {
    std::vector<Candidate> ends;
    const int64_t work_left = work_left_;
    for (const PlanShape& shape : EndChanges(best, Limits())) {
      const std::optional<double> estimate_ns = Estimate(shape);
      if (estimate_ns.has_value()) ends.push_back({shape, *estimate_ns});
    }
    work_left_ = work_left;  // Only simulations count here.
    std::stable_sort(ends.begin(), ends.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return a.estimate_ns < b.estimate_ns;
                     });
    return ends;
  }

  static bool WorthSimulating(const Candidate& changed, const Candidate& best) {
    return changed.estimate_ns <= kWorthSimulating * best.estimate_ns;
  }

  bool EstimatesShorter(const PlanShape& shape, Candidate& best) {
    const std::optional<double> estimate_ns = Estimate(shape);
    if (!estimate_ns.has_value() || *estimate_ns >= best.estimate_ns) {
      return false;
    }
    best = {shape, *estimate_ns};
    return true;
  }

  bool SimulatesShorter(const PlanShape& shape, Candidate& best) {
    const std::optional<double> estimate_ns = Estimate(shape);
    if (!estimate_ns.has_value()) return false;
    Candidate changed{shape, *estimate_ns};
    if (!WorthSimulating(changed, best)) return false;
    Simulate(changed);
    if (changed.step_ns >= best.step_ns) return false;
    best = changed;
    return true;
  }

  const ModelCosts& costs_;
  const Machine& machine_;
  const int micro_batches_;
  const SearchOptions& options_;
  int64_t work_left_;
  int ranked_ = 0;
  int simulated_ = 0;
  std::string misfit_;  // why the first plan that did not fit did not
};

}  // namespace

absl::StatusOr<SearchResult> SearchStepPlan(const ModelCosts& costs,
                                            const Machine& machine,
                                            int micro_batches,
                                            const SearchOptions& options) {
  if (machine.devices.empty() || micro_batches < 1 ||
      micro_batches > kMaxSimulatedMicroBatches) {
    return absl::InvalidArgumentError(
        absl::StrCat(micro_batches, " micro-batches on ",
                     machine.device_count(), " devices"));
  }
  return Search(costs, machine, micro_batches, options).Run();
}

absl::StatusOr<int64_t> SimulatedStepNs(const ModelCosts& costs,
                                        const Machine& machine,
                                        const StepPlan& plan, int micro_batches,
                                        const SearchOptions& options) {
  if (options.updates == Updates::kNone) {
    ASSIGN_OR_RETURN(
        const Schedule schedule,
        SimulateStep(costs, machine, plan, micro_batches, StepOf(options)));
    return schedule.MakespanNs();
  }
  ASSIGN_OR_RETURN(const Schedule schedule,
                   SimulateFew(costs, machine, plan, micro_batches,
                               SimulatedSteps(options), options));
  return SteadyStepNs(schedule, micro_batches, options);
}

}  // namespace roundhouse
