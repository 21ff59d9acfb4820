#include "scheduler/simulate/host_work.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace roundhouse {

namespace {

// What a layer's sum is of, at 2 bytes a parameter.
int64_t SumBytes(const ModelCosts& costs, int layer) {
  if (layer < 0) return costs.embedding_gradient_bytes;
  if (layer == costs.head() && costs.tied_head) return 0;  // the embedding's
  return costs.GradientBytes(layer);
}

// The layer whose contributions are reduced to the sum of `layer`.
int ContributorOf(const ModelCosts& costs, int layer) {
  return layer == kHeadShare ? costs.head() : layer;
}

bool InOnePass(int layer, Updates updates) {
  return layer >= 0 && IsOnePass(updates);
}

bool ReadsContributions(const ModelCosts& costs, int layer) {
  if (layer == kEmbedding) return false;
  return layer != costs.head() || !costs.tied_head;
}

}  // namespace

double MostUpdateBytesRate(Updates updates) {
  return kMostUpdateRate * static_cast<double>(IsOnePass(updates)
                                                   ? kOnePassBytesPerParameter
                                                   : kUpdateBytesPerParameter);
}

int64_t ContributionBytes(const ModelCosts& costs, int layer,
                          Contributions contributions) {
  const int64_t bytes = costs.GradientBytes(layer);
  return contributions == Contributions::kFp32 ? 2 * bytes : bytes;
}

int64_t ReduceBytes(const ModelCosts& costs, int layer,
                    Contributions contributions, Updates updates,
                    int64_t count) {
  const int64_t read =
      ReadsContributions(costs, layer)
          ? count * ContributionBytes(costs, ContributorOf(costs, layer),
                                      contributions)
          : 0;
  return read + (InOnePass(layer, updates) ? 0 : 2 * SumBytes(costs, layer));
}

int64_t AddToSumBytes(const ModelCosts& costs, int layer) {
  return 2 * SumBytes(costs, layer);
}

int64_t UpdateBytes(const ModelCosts& costs, int layer, Updates updates) {
  return SumBytes(costs, layer) / 2 *
         (InOnePass(layer, updates) ? kOnePassBytesPerParameter
                                    : kUpdateBytesPerParameter);
}

int64_t AddRowsBytes(const ModelCosts& costs, int64_t micro_batches) {
  // Both at 2 bytes an element; the sum's 4 are read and written.
  const int64_t gradients = micro_batches * costs.BoundaryBytes();
  return gradients + 4 * std::min(gradients, costs.embedding_gradient_bytes);
}

bool TrainsEmbedding(const ModelCosts& costs) {
  return costs.head_gradient_bytes > 0;
}

HostWork::HostWork(const ModelCosts& costs, const std::vector<Part>& parts,
                   const Rounds& rounds, Contributions contributions)
    : costs_(costs),
      rounds_(rounds),
      contributions_(contributions),
      contribution_count_(costs.layers + 1) {
  ROUNDHOUSE_CHECK(!IsOnePass(rounds.updates) ||
                   (rounds.directed && rounds.per_step == 1));
  Round round;
  round.layers.resize(costs.layers + 1);
  round.layers_left = round.updates_left = costs.layers + 1;
  round.rows_left = TrainsEmbedding(costs) ? rounds.micro_batches : 0;
  for (const Part& part : parts) {
    if (!part.backward()) continue;
    for (int l = part.layers.first; l <= part.layers.last; ++l) {
      ++round.layers[l].contributors_left;
      contribution_count_[l] += part.contributions;
    }
  }
  state_.assign(rounds.count(), round);
}

void HostWork::ContributionsDown(int round, int layer) {
  int& left = state_.at(round).layers.at(layer).contributors_left;
  ROUNDHOUSE_CHECK(left > 0) << "round " << round << " layer " << layer;
  if (--left > 0 || rounds_.directed) return;
  const int step = round / rounds_.per_step;
  const bool first = round % rounds_.per_step == 0;
  // The sum is still to be read; Updated reduces it.
  if (first && step > 0 && rounds_.updates != Updates::kNone &&
      !state_[round - 1].layers[layer].updated) {
    return;
  }
  Reduce(round, layer);
}

void HostWork::RowsGradientDown(int round) { --state_.at(round).rows_left; }

void HostWork::Done(const Job& job) {
  if (job.layer < 0) return;  // whoever directs knows
  if (job.kind == WorkKind::kReduce) {
    Reduced(job.round, job.layer);
  } else {
    Updated(job.round / rounds_.per_step, job.layer);
  }
}

void HostWork::Start(WorkKind kind, int round, int layer) {
  ROUNDHOUSE_CHECK(rounds_.directed);
  if (kind == WorkKind::kReduce || InOnePass(layer)) {
    Reduce(round, layer);
  } else {
    Update(round / rounds_.per_step, layer);
  }
}

std::vector<HostWork::Job> HostWork::TakeJobs() {
  return std::exchange(jobs_, {});
}

void HostWork::Reduce(int round, int layer) {
  const bool first = round % rounds_.per_step == 0;
  int64_t bytes = 0;
  if (layer == kEmbedding) {
    bytes =
        costs_.tied_head || !first
            ? AddRowsBytes(costs_, rounds_.micro_batches)
            : ReduceBytes(costs_, layer, contributions_, rounds_.updates, 0) +
                  rounds_.micro_batches * costs_.BoundaryBytes();
  } else {
    bytes = ReduceBytes(costs_, layer, contributions_, rounds_.updates,
                        contribution_count_[ContributorOf(costs_, layer)]);
    if (!first) bytes += AddToSumBytes(costs_, layer);
  }
  jobs_.push_back({WorkKind::kReduce, round, layer, bytes});
}

void HostWork::Reduced(int round, int layer) {
  Round& state = state_.at(round);
  state.layers.at(layer).reduced = true;
  --state.layers_left;
  const int step = round / rounds_.per_step;
  if (InOnePass(layer)) Update(step, layer);
  if (round != LastRound(step) || rounds_.directed) return;
  if (rounds_.updates == Updates::kAsReduced ||
      rounds_.updates == Updates::kStale) {
    Update(step, layer);
  } else if (rounds_.updates == Updates::kClipped && state.layers_left == 0) {
    for (int l = 0; l <= costs_.layers; ++l) Update(step, l);
  }
}

void HostWork::Update(int step, int layer) {
  jobs_.push_back({WorkKind::kOptimizer, LastRound(step), layer,
                   UpdateBytes(costs_, layer, rounds_.updates)});
}

void HostWork::Updated(int step, int layer) {
  const int round = LastRound(step);
  state_.at(round).layers.at(layer).updated = true;
  --state_[round].updates_left;
  const int next = round + 1;
  if (!rounds_.directed && next < rounds_.count() &&
      state_[next].layers[layer].contributors_left == 0) {
    Reduce(next, layer);
  }
}

bool HostWork::ContributionsMayGoDown(int round, int layer) const {
  if (round == 0 || costs_.GradientBytes(layer) == 0) return true;
  const Layer& before = state_.at(round - 1).layers.at(layer);
  return InOnePass(layer) ? before.updated : before.reduced;
}

int HostWork::SourceStep(int step) const {
  if (rounds_.updates == Updates::kNone) return -1;
  return step - (IsStale(rounds_.updates) ? 2 : 1);
}

bool HostWork::WeightsMayGoUp(int round, int layer) const {
  if (costs_.GradientBytes(layer) == 0) return true;
  const int source = SourceStep(round / rounds_.per_step);
  if (source < 0) return true;
  const Round& state = state_.at(LastRound(source));
  return rounds_.per_layer ? state.layers.at(layer).updated
                           : state.updates_left == 0;
}

bool HostWork::RowsAreThere(int round) const {
  if (round >= 2 && state_.at(round - 2).layers_left > 0) return false;
  const int source = SourceStep(round / rounds_.per_step);
  for (int r = 0; source >= 0 && r < rounds_.per_step; ++r) {
    if (state_.at(LastRound(source) - r).rows_left > 0) return false;
  }
  return true;
}

}  // namespace roundhouse
