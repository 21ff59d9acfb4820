// JobSteps: what the host worker does next.
#include <algorithm>

#include "scheduler/dispatch/job_steps.h"

namespace roundhouse {

bool JobSteps::SendGather() {
  for (Round& round : rounds_) {
    if (round.gather_sent) continue;
    if (IsAbandoned(round.step_number)) return false;
    for (const Round& earlier : rounds_) {
      if (earlier.number >= round.number) break;
      if (earlier.number % 2 == round.number % 2) return false;
    }
    // The host worker takes operations in order: the gather may wait for an
    // update that was sent before it, never for a later one.
    if (GatherWaits(round) || !MayTakeRows(round)) return false;
    round.boundaries.TakeRows(boundary_blocks_);
    round.gather_sent = true;
    RunHostOpAction action;
    action.kind = HostOpKind::kGather;
    action.step_number = round.step_number;
    action.round = round.index;
    action.buffer_set = static_cast<int>(round.number % 2);
    action.row_blocks = round.boundaries.OfRows();
    Emit(action);
    return true;
  }
  return false;
}

// In the order of slots: every one before the round has its blocks.
bool JobSteps::MayTakeRows(const Round& round) const {
  if (round.boundaries.RowsNeed() > boundary_blocks_.free()) return false;
  return std::all_of(rounds_.begin(), rounds_.end(),
                     [&round](const Round& earlier) {
                       return earlier.number >= round.number ||
                              earlier.slots_without_blocks == 0;
                     });
}

// For the update that leaves the rows that the round reads.
bool JobSteps::GatherWaits(const Round& round) const {
  const uint64_t behind = shape_.stale ? 1 : 0;
  return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    return step.number + behind < round.step_number && step.spec.train &&
           shape_.Trains(0) && !step.update_sent[0];
  });
}

bool JobSteps::SendUpdate() {
  if (steps_.empty()) return false;
  Step& step = steps_.front();
  if (Held(step)) return false;
  if (!step.spec.train || !step.updates_allowed) return false;
  if (IsAbandoned(step.number)) return false;
  if (step.updatable.empty()) return false;
  const int unit = *step.updatable.begin();
  step.updatable.erase(step.updatable.begin());
  step.update_sent[unit] = true;
  RunHostOpAction action;
  action.kind = HostOpKind::kUpdate;
  action.step_number = step.number;
  action.unit = unit;
  if (shape_.OnePass(unit)) {
    Round& round = *std::find_if(
        rounds_.begin(), rounds_.end(),
        [&](const Round& r) { return r.step_number == step.number; });
    round.reduce_sent[unit] = true;
    action.blocks = BlocksOfUnit(round, unit);
  }
  Emit(action);
  return true;
}

bool JobSteps::MayUpdate(const Step& step, int unit) const {
  const auto is_summed = [&](const Round& round, int sum) {
    // Who reads it has contributed when it commits.
    return (shape_.OnePass(sum) || round.reduce_done[sum]) &&
           round.readers_left[sum] == 0;
  };
  return step.spec.train &&
         std::all_of(rounds_.begin(), rounds_.end(), [&](const Round& round) {
           return round.step_number != step.number ||
                  (is_summed(round, unit) &&
                   (unit > 0 || is_summed(round, shape_.head_share())));
         });
}

bool JobSteps::SendReduce() {
  for (const auto& [number, unit] : reducible_) {
    Round& round = *std::find_if(
        rounds_.begin(), rounds_.end(),
        [number = number](const Round& r) { return r.number == number; });
    if (IsAbandoned(round.step_number)) return false;
    if (!MayReduce(round, unit)) continue;
    SendReduce(round, unit);
    return true;
  }
  return false;
}

// The head's share is added before the rows, whenever those come: so both may
// be one operation.
bool JobSteps::MayReduce(const Round& round, int unit) const {
  if (EarlierReduceWaits(round, unit) || SumIsNeeded(round, unit)) return false;
  const int share = shape_.head_share();
  return unit != 0 || round.reduce_sent[share] ||
         round.contributors_left[share] == 0;
}

void JobSteps::SendReduce(Round& round, int unit) {
  const int share = shape_.head_share();
  const Step& step = *FindStep(round.step_number);
  const bool has_share =
      unit == share || (unit == 0 && !round.reduce_sent[share]);
  RunHostOpAction action;
  action.kind = HostOpKind::kReduce;
  action.step_number = round.step_number;
  action.round = round.index;
  action.buffer_set = static_cast<int>(round.number % 2);
  action.unit = unit == share ? 0 : unit;
  action.rows = unit == 0;
  if (action.rows) action.row_blocks = round.boundaries.OfRowGradient();
  action.add_to_sum =
      round.index > 0 || (unit == 0 && shape_.tied_head && !has_share);
  action.last_round =
      round.index + 1 == static_cast<int>(step.spec.round_micro_batches.size());
  if (unit > 0 || has_share) {
    action.blocks = BlocksOfUnit(round, has_share ? share : unit);
  }
  for (const int sum : SumsOf(action)) {
    round.reduce_sent[sum] = true;
    reducible_.erase({round.number, sum});
  }
  Emit(action);
}

// What the reduction adds: a unit's, or of the embedding's rows and a tied
// head's share.
std::vector<int> JobSteps::SumsOf(const RunHostOpAction& action) const {
  if (action.unit > 0) return {action.unit};
  std::vector<int> sums;
  if (action.rows) sums.push_back(0);
  if (!action.blocks.empty()) sums.push_back(shape_.head_share());
  return sums;
}

// By an earlier step's update, which has not been sent.
bool JobSteps::SumIsNeeded(const Round& round, int sum) const {
  const int unit = sum == shape_.head_share() ? 0 : sum;
  return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    return step.number < round.step_number && step.spec.train &&
           !step.update_sent[unit];
  });
}

bool JobSteps::EarlierReduceWaits(const Round& round, int sum) const {
  const int unit = sum == shape_.head_share() ? 0 : sum;
  return std::any_of(rounds_.begin(), rounds_.end(), [&](const Round& earlier) {
    return earlier.number < round.number && !earlier.reduce_sent[unit];
  });
}

void JobSteps::Emit(RunHostOpAction action) {
  action.job = job_;
  action.op = sent_.NextHostOpId();
  sent_.AddHostOp(action);
  actions_.push_back(action);
}

}  // namespace roundhouse
