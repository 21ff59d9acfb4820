#include "scheduler/search/step_search.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "scheduler/search/search_shapes.h"
#include "scheduler/search/search_time.h"
#include "scheduler/search/shape_changes.h"
#include "scheduler/search/step_bound.h"
#include "scheduler/search/step_estimate.h"
#include "scheduler/simulate/device_memory.h"
#include "scheduler/simulate/part_feed.h"

namespace roundhouse {
namespace {

// Tails whose plans are improved by estimate, then simulated.
constexpr size_t kRanked = 6;
// Kinds of plans of which the one with the best estimate is simulated.
constexpr size_t kKinds = 16;
// An estimate this near the least one of a far start is as good.
constexpr double kNearlyLeast = 1.01;
// A change whose estimate is this much worse is not simulated; nor is one that
// was drawn, of which there are more than can be.
constexpr double kWorth = 1.02;
constexpr double kDrawnWorth = 1.01;
constexpr int kMostDrawn = 2000;
constexpr uint32_t kSeed = 1;
// Plans for consecutive steps that are the shortest by two or three steps; more
// steps tell them apart.
constexpr size_t kSettled = 3;
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Candidate {
  PlanShape shape;
  double estimate_ns = 0;
  double step_ns = 0;     // simulated
  double settled_ns = 0;  // by more steps, where there are several
};

struct Estimated {
  PlanShape shape;
  std::optional<double> ns;  // none: it does not fit
  int64_t work = 0;
};

struct Simulated {
  StepPlan plan;
  int rounds = 0;
  double most_ns = 0;  // what was asked for
  double ns = 0;       // infinite: more than that
  int64_t work = 0;
};

class Search {
 public:
  Search(const ModelCosts& costs, const Machine& machine, int micro_batches,
         const SearchOptions& options)
      : costs_(costs),
        machine_(machine),
        micro_batches_(micro_batches),
        options_(options),
        shapes_(costs, machine, micro_batches, options),
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
      ImproveByEstimate(candidate);
    }
    // What is estimated on the way takes longer for unequal devices.
    work_left_ = machine_.equal_devices() ? options_.work : options_.work / 2;
    // No plan may be slower than this one, however wrong the estimates are.
    const PlanShape all_wide = shapes_.AllWide();
    const std::optional<double> estimate_ns = Estimate(all_wide);
    for (const Candidate& other : BestKinds()) best.push_back(other);
    KeepBest(best, best.size(), &Candidate::estimate_ns);
    const std::vector<Candidate> far = RankFarStarts();
    best.insert(best.begin(), far.begin(), far.end());
    if (estimate_ns.has_value()) {
      best.insert(best.begin(), {all_wide, *estimate_ns});
    }
    SimulateFirst(best, 2 + far.size());
    KeepBest(best, best.size(), &Candidate::step_ns);
    const std::vector<Candidate> starts = best;
    ImproveBySimulation(best.front(), ShapeChanges);
    Candidate found = Settled();
    work_left_ += options_.ends_work;
    ImproveEnds(found);
    work_left_ += options_.stages_work;
    if (options_.ideas.uneven) ImproveStages(found);
    work_left_ = std::max<int64_t>(work_left_, 0) + options_.others_work;
    ImproveOthers(starts, found);
    SearchResult result;
    result.shape = found.shape;
    result.plan = ShapePlan(result.shape, costs_, machine_, micro_batches_);
    result.step_ns = static_cast<int64_t>(found.step_ns);
    result.ranked = ranked_;
    result.simulated = static_cast<int>(simulated_.size());
    return result;
  }

 private:
  using Changes = std::vector<PlanShape> (*)(const PlanShape&,
                                             const ShapeLimits&);

  // The first `least`, and as many of the others as half of the work allows.
  void SimulateFirst(std::vector<Candidate>& candidates, size_t least) {
    double shortest_ns = kNever;
    size_t count = 0;
    for (; count < candidates.size(); ++count) {
      if (count >= least && work_left_ <= options_.work / 2) break;
      Simulate(candidates[count], kWorth * shortest_ns);
      shortest_ns = std::min(shortest_ns, candidates[count].step_ns);
    }
    candidates.resize(count);
  }

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

  // The best of each kind of all plans that were estimated, best first.
  std::vector<Candidate> BestKinds() {
    std::vector<Candidate> all;
    for (const Estimated& estimated : estimated_) {
      if (estimated.ns.has_value()) {
        all.push_back({estimated.shape, *estimated.ns});
      }
    }
    SortByEstimate(all);
    std::vector<Candidate> kinds;
    for (const Candidate& candidate : all) {
      const bool known =
          std::any_of(kinds.begin(), kinds.end(), [&](const Candidate& other) {
            return SameKind(candidate.shape, other.shape);
          });
      if (known) continue;
      kinds.push_back(candidate);
      if (kinds.size() == kKinds) break;
    }
    return kinds;
  }

  // The lengths of the fused tail that promise most, each with the best of a
  // few widths and stages.
  std::vector<Candidate> RankTails() {
    std::vector<Candidate> best;
    for (int tail = 0; tail <= costs_.layers;
         tail = std::max(tail + 1, tail * 4 / 3)) {
      std::vector<Candidate> candidates;
      for (const PlanShape& shape : shapes_.OfTail(tail)) {
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

  // The longest tail of each start whose estimate is nearly the least:
  // estimates hardly see what is not computed twice.
  std::vector<Candidate> RankFarStarts() {
    std::vector<Candidate> best;
    const int64_t work_left = work_left_;
    for (PlanShape shape : shapes_.FarStarts()) {
      std::vector<Candidate> fits;
      double least_ns = kNever;
      for (int tail = 0; tail <= costs_.layers; ++tail) {
        shape.fused_layers = tail;
        const std::optional<double> estimate_ns = Estimate(shape);
        if (!estimate_ns.has_value()) continue;
        fits.push_back({shape, *estimate_ns});
        least_ns = std::min(least_ns, *estimate_ns);
      }
      while (!fits.empty() &&
             fits.back().estimate_ns > kNearlyLeast * least_ns) {
        fits.pop_back();
      }
      if (!fits.empty()) best.push_back(fits.back());
    }
    work_left_ = work_left;  // Only simulations count here.
    return best;
  }

  // Nothing when it does not fit.  Counts as work, known already or not: then
  // what a search finds does not depend on what it remembers.
  std::optional<double> Estimate(const PlanShape& shape) {
    auto known = std::find_if(
        estimated_.begin(), estimated_.end(),
        [&](const Estimated& other) { return other.shape == shape; });
    if (known == estimated_.end()) {
      estimated_.push_back(EstimateAnew(shape));
      known = std::prev(estimated_.end());
    }
    work_left_ -= known->work;
    return known->ns;
  }

  Estimated EstimateAnew(const PlanShape& shape) {
    Estimated estimated{shape};
    const StepPlan plan = ShapePlan(shape, costs_, machine_, micro_batches_);
    if (!shapes_.IdeasAllow(plan)) return estimated;
    const std::vector<Part> parts = PartsOf(plan, micro_batches_);
    // Most plans that do not fit are found out before devices are assigned.
    if (!misfit_.empty() && FusedPartIsTooLarge(parts, costs_, machine_)) {
      return estimated;
    }
    std::vector<int> devices;
    const absl::Status fits = CheckMemory(parts, plan.look_ahead, devices);
    if (!fits.ok()) {
      if (misfit_.empty()) misfit_ = std::string(fits.message());
      return estimated;
    }
    if (options_.accepts != nullptr && !options_.accepts(plan)) {
      if (misfit_.empty()) misfit_ = "whoever is to run it refuses it";
      return estimated;
    }
    ++ranked_;
    estimated.work = WorkOf(parts);
    const double step_ns =
        EstimateStepNs(parts, devices, costs_, machine_,
                       {.micro_batches = micro_batches_,
                        .look_ahead = plan.look_ahead,
                        .contributions = options_.contributions,
                        .updates = options_.updates,
                        .fused = options_.fused});
    estimated.ns = step_ns;
    if (options_.updates != Updates::kNone) {
      const BoundOptions bound{micro_batches_, options_.rounds,
                               options_.updates, options_.contributions};
      estimated.ns = EstimateStepsNs(parts, step_ns, costs_, machine_, bound,
                                     options_.fused);
    }
    return estimated;
  }

  // Also where a round follows a round.  Says which devices run the parts, of
  // the first round first.
  absl::Status CheckMemory(const std::vector<Part>& parts, int look_ahead,
                           std::vector<int>& devices) const {
    const int rounds = std::min(SimulatedRounds(options_), 2);
    devices = AssignDevices(parts, costs_, machine_, rounds);
    return CheckDeviceMemory(parts, devices, costs_, machine_, look_ahead);
  }

  static int64_t WorkOf(const std::vector<Part>& parts) {
    int64_t work = 0;
    for (const Part& part : parts) {
      work += part.micro_batches.size() + part.layers.layer_count();
    }
    return work;
  }

  // By a simulation of so many rounds, which count as work as far as they go;
  // infinite where it is certain to be more than `most_ns`.  Plans of different
  // shapes may be the same: those are simulated once, and count as before.
  double TimeOf(const PlanShape& shape, decltype(StepTimeUpTo) simulate,
                int rounds, double most_ns) {
    const StepPlan plan = ShapePlan(shape, costs_, machine_, micro_batches_);
    auto known = std::find_if(
        simulated_.begin(), simulated_.end(), [&](const Simulated& other) {
          return other.rounds == rounds && other.plan == plan &&
                 (other.ns < kNever || most_ns <= other.most_ns);
        });
    if (known == simulated_.end()) {
      const auto time =
          simulate(most_ns, costs_, machine_, plan, micro_batches_, options_);
      ROUNDHOUSE_CHECK(time.ok()) << time.status();
      const auto work =
          static_cast<double>(WorkOf(PartsOf(plan, micro_batches_)));
      const double ns =
          time->ns.has_value() ? static_cast<double>(*time->ns) : kNever;
      simulated_.push_back(
          {plan, rounds, most_ns, ns,
           static_cast<int64_t>(work * rounds * time->simulated)});
      known = std::prev(simulated_.end());
    }
    work_left_ -= known->work;
    return known->ns <= most_ns ? known->ns : kNever;
  }

  void Simulate(Candidate& candidate, double most_ns) {
    candidate.step_ns = TimeOf(candidate.shape, StepTimeUpTo,
                               SimulatedRounds(options_), most_ns);
    shortest_.push_back(candidate);
    KeepBest(shortest_, kSettled, &Candidate::step_ns);
  }

  // Whether it stays so in more steps, where there are several.
  bool IsShorter(Candidate& changed, Candidate& best) {
    Settle(best, kNever);
    Settle(changed, best.settled_ns);
    return changed.settled_ns < best.settled_ns;
  }

  void Settle(Candidate& candidate, double most_ns) {
    if (candidate.settled_ns > 0) return;
    candidate.settled_ns = options_.updates == Updates::kNone
                               ? candidate.step_ns
                               : TimeOf(candidate.shape, SettledTimeUpTo,
                                        SettledRounds(options_), most_ns);
  }

  // Changes one thing after the other, first come first kept, until nothing
  // helps or the work is used up.
  void ImproveByEstimate(Candidate& best) {
    bool better = true;
    while (better) {
      better = false;
      for (const PlanShape& shape :
           ShapeChanges(best.shape, shapes_.Limits())) {
        if (work_left_ <= 0) return;
        const std::optional<double> estimate_ns = Estimate(shape);
        if (!estimate_ns.has_value() || *estimate_ns >= best.estimate_ns) {
          continue;
        }
        best = {shape, *estimate_ns};
        better = true;
      }
    }
  }

  // Each change from the best so far, what promises most first: it is the
  // simulations that take time.
  void ImproveBySimulation(Candidate& best, Changes changes) {
    std::vector<PlanShape> tried;
    bool better = true;
    while (better && work_left_ > 0) {
      better = false;
      for (Candidate& changed :
           ByEstimate(changes(best.shape, shapes_.Limits()))) {
        if (work_left_ <= 0) return;
        const bool known =
            std::find(tried.begin(), tried.end(), changed.shape) != tried.end();
        if (known || changed.estimate_ns > kWorth * best.estimate_ns) continue;
        tried.push_back(changed.shape);
        Simulate(changed, best.step_ns);
        better = changed.step_ns < best.step_ns;
        if (!better) continue;
        best = changed;
        break;
      }
    }
  }

  // The one of the shortest that stays the shortest, as far as the work allows.
  Candidate Settled() {
    Candidate best = shortest_.front();
    for (size_t i = 1; i < shortest_.size() && work_left_ > 0; ++i) {
      Candidate other = shortest_[i];
      if (IsShorter(other, best)) best = other;
    }
    return best;
  }

  void ImproveEnds(Candidate& best) {
    Candidate changed = best;
    ImproveBySimulation(changed, EndChanges);
    if (changed.shape == best.shape) return;
    if (IsShorter(changed, best)) best = changed;
  }

  // Changes of single stages and slots are drawn: there are too many to try
  // each.
  void ImproveStages(Candidate& best) {
    best.shape = SpelledOut(best.shape, costs_.layers);
    std::vector<PlanShape> tried;
    std::mt19937 random(kSeed);
    for (int i = 0; i < kMostDrawn && work_left_ > 0; ++i) {
      const auto shape = DrawnChange(best.shape, shapes_.Limits(), random);
      if (!shape.has_value() ||
          std::find(tried.begin(), tried.end(), *shape) != tried.end()) {
        continue;
      }
      tried.push_back(*shape);
      for (Candidate& changed : ByEstimate({*shape})) {
        if (changed.estimate_ns > kDrawnWorth * best.estimate_ns) continue;
        Simulate(changed, best.step_ns);
        if (changed.step_ns >= best.step_ns) continue;
        if (IsShorter(changed, best)) best = changed;
      }
    }
  }

  // Where the best start leads nowhere before the work is used up: from the
  // best ones of other kinds.
  void ImproveOthers(const std::vector<Candidate>& starts, Candidate& best) {
    bool better = false;
    std::vector<Candidate> improved = {starts.front()};
    for (Candidate other : starts) {
      const bool known = std::any_of(
          improved.begin(), improved.end(), [&](const Candidate& start) {
            return SameKind(other.shape, start.shape) &&
                   other.shape.last_layers == start.shape.last_layers;
          });
      if (work_left_ <= 0 || other.step_ns == kNever) break;
      if (known) continue;
      improved.push_back(other);
      ImproveBySimulation(other, ShapeChanges);
      ImproveBySimulation(other, EndChanges);
      if (other.step_ns >= best.step_ns || !IsShorter(other, best)) continue;
      best = other;
      better = true;
    }
    if (!better) return;
    ImproveEnds(best);
    if (options_.ideas.uneven) ImproveStages(best);
  }

  std::vector<Candidate> ByEstimate(const std::vector<PlanShape>& shapes) {
    std::vector<Candidate> candidates;
    const int64_t work_left = work_left_;
    for (const PlanShape& shape : shapes) {
      const std::optional<double> estimate_ns = Estimate(shape);
      if (estimate_ns.has_value()) candidates.push_back({shape, *estimate_ns});
    }
    work_left_ = work_left;  // Only simulations count here.
    SortByEstimate(candidates);
    return candidates;
  }

  static void SortByEstimate(std::vector<Candidate>& candidates) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return a.estimate_ns < b.estimate_ns;
                     });
  }

  const ModelCosts& costs_;
  const Machine& machine_;
  const int micro_batches_;
  const SearchOptions& options_;
  const SearchShapes shapes_;
  int64_t work_left_;
  std::vector<Estimated> estimated_;
  std::vector<Simulated> simulated_;
  std::vector<Candidate> shortest_;  // of those simulated
  int ranked_ = 0;
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
  RETURN_IF_ERROR(CheckUpdates(options.updates, options.rounds, options.ideas));
  return Search(costs, machine, micro_batches, options).Run();
}

}  // namespace roundhouse
