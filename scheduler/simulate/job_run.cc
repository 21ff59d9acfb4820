#include "scheduler/simulate/job_run.h"

namespace roundhouse {
namespace {

std::vector<Part> FirstRound(const std::vector<Part>& parts,
                             const HostWork::Rounds& rounds) {
  const auto count = parts.size() / static_cast<size_t>(rounds.count());
  return {parts.begin(), parts.begin() + static_cast<ptrdiff_t>(count)};
}

}  // namespace

JobRun::JobRun(const Place& place, const ModelCosts& costs,
               const std::vector<Part>& parts, const HostWork::Rounds& rounds,
               Contributions contributions, FusedSlots fused)
    : index_(place.index),
      first_number_(place.first_number),
      costs_(costs),
      parts_(parts),
      rounds_(rounds),
      fused_(fused),
      micro_batches_(static_cast<size_t>(rounds.count()) *
                     rounds.micro_batches),
      host_(costs, FirstRound(parts, rounds), rounds, contributions),
      saved_(SavedInputsOf(parts)),
      runs_(parts.size()),
      in_host_(kDirections * (costs.layers + 2) * micro_batches_) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const int number = first_number_ + static_cast<int>(i);
    Restart(number, number + 1);
  }
}

void JobRun::Restart(int number, int attempt) {
  const int part = number - first_number_;
  runs_[part] =
      std::make_unique<PartRun>(parts_[part], costs_, saved_, fused_,
                                PartRun::Place{index_, number, attempt});
}

void JobRun::Stamp(int round, Transfer& transfer) const {
  transfer.job = index_;
  transfer.round = round;
  transfer.step = round / rounds_.per_step;
  transfer.first_micro_batch =
      transfer.step * rounds_.per_step * rounds_.micro_batches;
}

const PartRun* JobRun::MakerOf(const Boundary& boundary) const {
  const bool backward = boundary.direction == PassDirection::kBackward;
  const bool again = boundary.direction == PassDirection::kAgain;
  for (const auto& run : runs_) {
    const Part& part = run->part();
    const bool makes =
        backward ? part.backward() && part.layers.first == boundary.layer
                 : !part.backward() && part.again == again &&
                       part.layers.first < boundary.layer &&
                       boundary.layer <= part.layers.last + 1;
    if (makes && part.micro_batches.begin <= boundary.micro_batch &&
        boundary.micro_batch < part.micro_batches.end) {
      return run.get();
    }
  }
  return nullptr;
}

bool JobRun::InputsInHost(const PartRun& run) {
  for (int lap = 0; lap < run.lap_count(); ++lap) {
    for (const Boundary& boundary : run.Inputs(lap)) {
      if (!InHost(boundary)) return false;
    }
  }
  return true;
}

bool JobRun::WeightsMayGoUp(const PartRun& run) const {
  const Part& part = run.part();
  for (int layer = part.layers.first; layer <= part.layers.last; ++layer) {
    if (!host_.WeightsMayGoUp(RoundOf(part), layer)) return false;
  }
  return true;
}

void JobRun::PublishRows(int round) {
  const int first = round * rounds_.micro_batches;
  for (int m = first; m < first + rounds_.micro_batches; ++m) {
    InHost({0, PassDirection::kForward, m}) = true;
  }
}

bool JobRun::PublishNextRows() {
  if (rounds_.directed) return false;
  const int before = rounds_begun_;
  while (rounds_begun_ < rounds_.count() && host_.RowsAreThere(rounds_begun_)) {
    PublishRows(rounds_begun_++);
  }
  return rounds_begun_ > before;
}

}  // namespace roundhouse
