#include "scheduler/simulate/steps_check.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/simulate/compute_check.h"
#include "scheduler/simulate/host_work.h"
#include "scheduler/simulate/transfer_check.h"

namespace roundhouse {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

absl::Status StepViolation(int step, int layer, const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, " layer ", layer, ": ", why));
}

}  // namespace

StepsCheck::StepsCheck(const Schedule& schedule, const ModelCosts& costs,
                       const StepsCheckOptions& options)
    : schedule_(schedule),
      costs_(costs),
      options_(options),
      rounds_(Rounds()),
      rows_up_ns_(Rounds(), kNever),
      rows_down_ns_(options.steps) {}

void StepsCheck::Extend(Spans& spans, const Key& key,
                        const Interval& interval) {
  const auto [entry, first] =
      spans.try_emplace(key, Span{interval.start_ns, interval.end_ns, 0});
  Span& span = entry->second;
  span.begin_ns = std::min(span.begin_ns, interval.start_ns);
  span.end_ns = std::max(span.end_ns, interval.end_ns);
  span.bytes += interval.bytes;
}

int StepsCheck::SourceStep(int step) const {
  return step - (IsStale(options_.updates) ? 2 : 1);
}

// --- apart ---

absl::Status StepsCheck::CheckPlace(const Interval& interval) const {
  if (interval.step < 0 || interval.step >= options_.steps) {
    return Violation(interval, "there is no such step");
  }
  const bool has_micro_batch =
      IsCompute(interval.kind) || interval.kind == WorkKind::kActivations;
  if (interval.micro_batch < (has_micro_batch ? 0 : kNoMicroBatch) ||
      interval.micro_batch >= options_.rounds * options_.micro_batches) {
    return Violation(interval, "there is no such micro-batch of a step");
  }
  const bool one_layer = interval.layer_begin >= 0 &&
                         interval.layer_begin <= costs_.head() &&
                         interval.layer_end == interval.layer_begin + 1;
  if (interval.micro_batch == kNoMicroBatch && !one_layer) {
    return Violation(interval, "not of one layer");
  }
  const Resource optimizer{ResourceType::kHost,
                           static_cast<int>(HostThreads::kOptimizer)};
  if (interval.kind == WorkKind::kOptimizer && interval.resource != optimizer) {
    return Violation(interval, "not the work of this resource");
  }
  return absl::OkStatus();
}

absl::Status StepsCheck::Split() {
  std::vector<const Interval*> order;
  for (const Interval& interval : schedule_.intervals) {
    RETURN_IF_ERROR(CheckPlace(interval));
    order.push_back(&interval);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Interval* a, const Interval* b) {
                     return std::tie(a->start_ns, a->end_ns) <
                            std::tie(b->start_ns, b->end_ns);
                   });
  for (const Interval* interval : order) {
    if (interval->micro_batch != kNoMicroBatch) {
      Add(*interval, interval->step * options_.rounds +
                         interval->micro_batch / options_.micro_batches);
    } else if (interval->kind == WorkKind::kOptimizer) {
      Extend(updates_, {interval->step, interval->layer_begin}, *interval);
    }
  }
  RETURN_IF_ERROR(SplitWeights(order));
  return SplitGradients(order);
}

void StepsCheck::Add(const Interval& interval, int round) {
  Interval own = interval;
  const int layer = interval.layer_begin;
  if (own.micro_batch != kNoMicroBatch) {
    own.micro_batch %= options_.micro_batches;
  }
  if (own.kind == WorkKind::kGradients) {
    Extend(gradients_, {round, layer}, own);
  } else if (own.kind == WorkKind::kReduce) {
    Extend(reductions_, {round, layer}, own);
  } else if (own.kind == WorkKind::kWeights) {
    Extend(uploads_, {own.step, layer}, own);
  } else if (own.kind == WorkKind::kActivations && layer == 0) {
    if (own.direction == PassDirection::kForward) {
      rows_up_ns_[round] = std::min(rows_up_ns_[round], own.start_ns);
    } else {
      int64_t& down_ns = rows_down_ns_[own.step];
      down_ns = std::max(down_ns, own.end_ns);
    }
  }
  rounds_[round].device_count = schedule_.device_count;
  rounds_[round].intervals.push_back(own);
}

absl::Status StepsCheck::SplitWeights(
    const std::vector<const Interval*>& order) {
  // Step, device, layer, direction: the rounds that use it there.
  using Use = std::tuple<int, int, int, PassDirection>;
  std::map<Use, std::set<int>> uses;
  auto use_of = [](const Interval& interval, int layer) {
    return Use{interval.step, interval.resource.index, layer,
               interval.direction};
  };
  for (const Interval* interval : order) {
    if (!IsCompute(interval->kind)) continue;
    const int round = interval->step * options_.rounds +
                      interval->micro_batch / options_.micro_batches;
    for (int l = interval->layer_begin; l < interval->layer_end; ++l) {
      uses[use_of(*interval, l)].insert(round);
    }
  }
  std::map<Use, int64_t> moved;
  for (const Interval* interval : order) {
    if (interval->kind != WorkKind::kWeights) continue;
    const int layer = interval->layer_begin;
    const Use use = use_of(*interval, layer);
    const auto ordinal =
        moved[use] / std::max<int64_t>(1, costs_.WeightBytes(layer));
    moved[use] += interval->bytes;
    const std::set<int>& rounds = uses[use];
    if (ordinal >= static_cast<int64_t>(rounds.size())) {
      return Violation(*interval, "no round of the step uses it there");
    }
    Add(*interval, *std::next(rounds.begin(), ordinal));
  }
  return absl::OkStatus();
}

absl::Status StepsCheck::SplitGradients(
    const std::vector<const Interval*>& order) {
  struct Progress {
    int round = 0;  // of the step
    bool reduced = false;
  };
  std::map<Key, Progress> progress;
  for (const Interval* interval : order) {
    const bool reduces = interval->kind == WorkKind::kReduce;
    if (!reduces && interval->kind != WorkKind::kGradients) continue;
    Progress& now = progress[{interval->step, interval->layer_begin}];
    if (reduces) {
      now.reduced = true;
    } else if (now.reduced) {
      ++now.round;
      now.reduced = false;
    }
    if (now.round >= options_.rounds) {
      return Violation(*interval, "after the last reduction of the step");
    }
    Add(*interval, interval->step * options_.rounds + now.round);
  }
  return absl::OkStatus();
}

// --- rounds ---

absl::Status StepsCheck::CheckRounds() const {
  CheckOptions options;
  options.machine = options_.machine;
  options.micro_batches = options_.micro_batches;
  options.updates = options_.updates;
  std::vector<TransferCheck::Changes> holds(options_.machine.devices.size());
  for (int r = 0; r < Rounds(); ++r) {
    options.adds_to_sum = r % options_.rounds > 0;
    const Schedule& round = rounds_[r];
    ComputeCheck compute(round, costs_, options);
    RETURN_IF_ERROR(compute.CheckCoverage());
    RETURN_IF_ERROR(compute.CheckOverlap());
    RETURN_IF_ERROR(compute.CheckDependencies(LinkDelivery(round, costs_)));
    const TransferCheck transfers(round, costs_, options,
                                  options_.contributions);
    RETURN_IF_ERROR(transfers.CheckWeights());
    RETURN_IF_ERROR(transfers.CheckGradients());
    RETURN_IF_ERROR(transfers.CheckEmbeddingGradients());
    for (size_t d = 0; d < holds.size(); ++d) {
      transfers.AppendHolds(static_cast<int>(d), holds[d]);
    }
  }
  for (size_t d = 0; d < holds.size(); ++d) {
    RETURN_IF_ERROR(TransferCheck::CheckHolds(
        static_cast<int>(d), std::move(holds[d]), costs_, options_.machine));
  }
  RETURN_IF_ERROR(CheckOverlap());
  return TransferCheck(schedule_, costs_, options, options_.contributions)
      .CheckRates();
}

absl::Status StepsCheck::CheckOverlap() const {
  std::vector<const Interval*> order;
  for (const Interval& interval : schedule_.intervals) {
    order.push_back(&interval);
  }
  std::sort(order.begin(), order.end(),
            [](const Interval* a, const Interval* b) {
              return std::tie(a->resource, a->start_ns, a->end_ns) <
                     std::tie(b->resource, b->start_ns, b->end_ns);
            });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->resource != order[i]->resource) continue;
    if (order[i]->start_ns < order[i - 1]->end_ns) {
      return Violation(*order[i],
                       absl::StrCat("overlaps ", ToString(*order[i - 1])));
    }
  }
  return absl::OkStatus();
}

// --- rules 10 to 13 ---

absl::Status StepsCheck::CheckUpdates() const {
  for (int step = 0; step < options_.steps; ++step) {
    for (int layer = 0; layer <= costs_.head(); ++layer) {
      RETURN_IF_ERROR(CheckUpdate(step, layer));
    }
    if (IsOnePass(options_.updates)) RETURN_IF_ERROR(CheckCommitted(step));
  }
  return absl::OkStatus();
}

absl::Status StepsCheck::CheckUpdate(int step, int layer) const {
  const auto update = updates_.find({step, layer});
  const int64_t moved = update == updates_.end() ? 0 : update->second.bytes;
  const int64_t expected = UpdateBytes(costs_, layer, options_.updates);
  if (moved != expected) {
    return StepViolation(
        step, layer,
        absl::StrCat("its update moves ", moved, " bytes, not ", expected));
  }
  if (moved == 0) return absl::OkStatus();
  const int round = LastRound(step);
  const bool clipped = options_.updates == Updates::kClipped;
  for (int other = clipped ? 0 : layer;
       other <= (clipped ? costs_.head() : layer); ++other) {
    const auto reduced = reductions_.find({round, other});
    if (reduced == reductions_.end()) continue;
    if (update->second.begin_ns < reduced->second.end_ns) {
      return StepViolation(
          step, layer,
          absl::StrCat("it is updated from ", update->second.begin_ns,
                       " ns, before the last reduction of layer ", other));
    }
  }
  return absl::OkStatus();
}

// What a part did last is of its commit; a part that reads a layer computes it.
absl::Status StepsCheck::CheckCommitted(int step) const {
  std::map<int, int64_t> ends_ns;                         // by attempt
  std::vector<std::set<int>> readers(costs_.layers + 1);  // per layer
  for (const Interval& interval : rounds_[LastRound(step)].intervals) {
    if (interval.resource.type == ResourceType::kHost) continue;
    int64_t& end_ns = ends_ns[interval.attempt];
    end_ns = std::max(end_ns, interval.end_ns);
    if (!IsCompute(interval.kind)) continue;
    for (int l = interval.layer_begin; l < interval.layer_end; ++l) {
      readers[l].insert(interval.attempt);
    }
  }
  for (int layer = 0; layer <= costs_.head(); ++layer) {
    const auto reduced = reductions_.find({LastRound(step), layer});
    if (reduced == reductions_.end()) continue;
    for (const int attempt : readers[layer]) {
      if (reduced->second.begin_ns >= ends_ns[attempt]) continue;
      return StepViolation(
          step, layer,
          absl::StrCat("it is reduced and updated from ",
                       reduced->second.begin_ns, " ns, before part ", attempt,
                       ", which reads it, commits, at ", ends_ns[attempt],
                       " ns"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepsCheck::CheckWeightVersions() const {
  for (int r = 0; r < Rounds(); ++r) {
    RETURN_IF_ERROR(CheckUploads(rounds_[r], r / options_.rounds));
  }
  // It overwrites what its own step has read, also where there are two
  // versions.
  for (const auto& [key, update] : updates_) {
    const auto& [step, layer] = key;
    const auto read = uploads_.find(key);
    if (read != uploads_.end() && update.begin_ns < read->second.end_ns) {
      return StepViolation(step, layer,
                           "it is updated before its last upload ended");
    }
  }
  return absl::OkStatus();
}

absl::Status StepsCheck::CheckUploads(const Schedule& round, int step) const {
  const int source = SourceStep(step);
  if (source < 0) return absl::OkStatus();
  std::map<std::pair<Resource, std::pair<int, PassDirection>>, int64_t> early;
  for (const Interval& interval : round.intervals) {
    if (interval.kind != WorkKind::kWeights) continue;
    const int layer = interval.layer_begin;
    const auto update = updates_.find({source, layer});
    if (update == updates_.end() ||
        interval.start_ns >= update->second.end_ns) {
      continue;
    }
    int64_t& bytes = early[{interval.resource, {layer, interval.direction}}];
    bytes += interval.bytes;
    if (bytes > costs_.WeightBytes(layer) - costs_.GradientBytes(layer)) {
      return Violation(
          interval, absl::StrCat("goes up before its update of step ", source,
                                 " ends, at ", update->second.end_ns, " ns"));
    }
  }
  return absl::OkStatus();
}

absl::Status StepsCheck::CheckSums() const {
  // Where one pass reads them, until it ends: a round is a step there.
  const Spans& read = IsOnePass(options_.updates) ? updates_ : reductions_;
  for (const auto& [key, gradients] : gradients_) {
    const auto& [round, layer] = key;
    const auto before = read.find({round - 1, layer});
    if (before != read.end() && gradients.begin_ns < before->second.end_ns) {
      return StepViolation(
          round / options_.rounds, layer,
          "contributions go down before the round before is reduced");
    }
  }
  for (const auto& [key, reduction] : reductions_) {
    const auto& [round, layer] = key;
    const auto update = updates_.find({round / options_.rounds - 1, layer});
    if (update != updates_.end() &&
        reduction.begin_ns < update->second.end_ns) {
      return StepViolation(round / options_.rounds, layer,
                           "it is reduced before the last step's sum was read");
    }
  }
  return absl::OkStatus();
}

absl::Status StepsCheck::CheckRows() const {
  for (int r = 0; r < Rounds(); ++r) {
    const int step = r / options_.rounds;
    const int source = SourceStep(step);
    int64_t there_ns = source < 0 ? 0 : rows_down_ns_[source];
    for (int layer = 0; r >= 2 && layer <= costs_.head(); ++layer) {
      const auto reduced = reductions_.find({r - 2, layer});
      if (reduced == reductions_.end()) continue;
      there_ns = std::max(there_ns, reduced->second.end_ns);
    }
    if (rows_up_ns_[r] < there_ns) {
      return StepViolation(step, 0,
                           absl::StrCat("inputs of round ", r % options_.rounds,
                                        " go up before ", there_ns, " ns"));
    }
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
