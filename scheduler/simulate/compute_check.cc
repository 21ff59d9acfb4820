#include "scheduler/simulate/compute_check.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// A resource's type fits the kind of work.
bool RunsOn(WorkKind kind, ResourceType type) {
  switch (kind) {
    case WorkKind::kWeights:
      return type == ResourceType::kH2d;
    case WorkKind::kGradients:
      return type == ResourceType::kD2h;
    case WorkKind::kActivations:
      return type == ResourceType::kH2d || type == ResourceType::kD2h;
    case WorkKind::kReduce:
    case WorkKind::kOptimizer:
      return type == ResourceType::kHost;
    default:
      return type == ResourceType::kCompute;
  }
}

bool LayersFit(const Interval& interval, int head) {
  const int begin = interval.layer_begin, end = interval.layer_end;
  switch (interval.kind) {
    case WorkKind::kHeadForward:
    case WorkKind::kHeadBackward:
      return begin == head && end == head + 1;
    case WorkKind::kFused:
      return 0 <= begin && begin < head && end == head + 1;
    case WorkKind::kForward:
    case WorkKind::kRecompute:
    case WorkKind::kBackward:
      return 0 <= begin && begin < end && end <= head;
    case WorkKind::kActivations:
      return 0 <= begin && begin == end && end <= head;
    default:
      return 0 <= begin && begin < end && end <= head + 1;
  }
}

bool HasMicroBatch(WorkKind kind) {
  return IsCompute(kind) || kind == WorkKind::kActivations;
}

int64_t WorkNs(WorkKind kind, int layer, const ModelCosts& costs) {
  switch (kind) {
    case WorkKind::kForward:
    case WorkKind::kHeadForward:
      return costs.ForwardNs(layer);
    case WorkKind::kRecompute:
      return costs.RecomputeNs(layer);
    case WorkKind::kBackward:
    case WorkKind::kHeadBackward:
      return costs.BackwardNs(layer);
    case WorkKind::kFused:
      return costs.ForwardNs(layer) + costs.BackwardNs(layer);
    default:
      return 0;
  }
}

}  // namespace

absl::Status Violation(const Interval& interval, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat(ToString(interval), ": ", why));
}

ComputeCheck::ComputeCheck(const Schedule& schedule, const ModelCosts& costs,
                           const CheckOptions& options)
    : schedule_(schedule), costs_(costs), options_(options) {
  const size_t size =
      static_cast<size_t>(costs.layers + 1) * options.micro_batches;
  forward_.resize(size);
  backward_.resize(size);
  recompute_.resize(size);
  again_.resize(size);
}

size_t ComputeCheck::Index(int layer, int micro_batch) const {
  return static_cast<size_t>(layer) * options_.micro_batches + micro_batch;
}

const Interval& ComputeCheck::Forward(int layer, int micro_batch) const {
  return *forward_.at(Index(layer, micro_batch));
}

const Interval& ComputeCheck::Backward(int layer, int micro_batch) const {
  return *backward_.at(Index(layer, micro_batch));
}

const Interval* ComputeCheck::Recompute(int layer, int micro_batch) const {
  return recompute_.at(Index(layer, micro_batch));
}

const Interval* ComputeCheck::Again(int layer, int micro_batch) const {
  return again_.at(Index(layer, micro_batch));
}

// --- rules 1 and 3 ---

absl::Status ComputeCheck::CheckCoverage() {
  for (const Interval& interval : schedule_.intervals) {
    RETURN_IF_ERROR(CheckShape(interval));
    if (!IsCompute(interval.kind)) continue;
    RETURN_IF_ERROR(CheckLength(interval));
    if (interval.lost) {
      EnterLost(interval);
      continue;
    }
    const WorkKind kind = interval.kind;
    if (interval.direction == PassDirection::kAgain) {
      if (kind != WorkKind::kForward) {
        return Violation(interval, "only forward slots run again");
      }
      RETURN_IF_ERROR(Enter(interval, again_));
      continue;
    }
    if (kind == WorkKind::kForward || kind == WorkKind::kHeadForward ||
        kind == WorkKind::kFused) {
      RETURN_IF_ERROR(Enter(interval, forward_));
    }
    if (kind == WorkKind::kBackward || kind == WorkKind::kHeadBackward ||
        kind == WorkKind::kFused) {
      RETURN_IF_ERROR(Enter(interval, backward_));
    }
    if (kind == WorkKind::kRecompute) {
      RETURN_IF_ERROR(Enter(interval, recompute_));
    }
  }
  for (int layer = 0; layer <= costs_.head(); ++layer) {
    for (int m = 0; m < options_.micro_batches; ++m) {
      RETURN_IF_ERROR(CheckComplete(layer, m));
    }
  }
  return absl::OkStatus();
}

absl::Status ComputeCheck::CheckShape(const Interval& interval) const {
  const ResourceType type = interval.resource.type;
  const int index_count =
      type == ResourceType::kHost ? 2 : options_.machine.device_count();
  if (interval.resource.index < 0 || interval.resource.index >= index_count) {
    return Violation(interval, "there is no such resource");
  }
  if (!RunsOn(interval.kind, type)) {
    return Violation(interval, "not the work of this resource");
  }
  if (!LayersFit(interval, costs_.head())) {
    return Violation(interval, "there are no such layers for it");
  }
  const int m = interval.micro_batch;
  const bool exists = 0 <= m && m < options_.micro_batches;
  if (HasMicroBatch(interval.kind) ? !exists : m != kNoMicroBatch) {
    return Violation(interval, "there is no such micro-batch for it");
  }
  if (interval.start_ns < 0 || interval.end_ns < interval.start_ns) {
    return Violation(interval, "ends before it starts");
  }
  return absl::OkStatus();
}

absl::Status ComputeCheck::CheckLength(const Interval& interval) const {
  const auto& device = options_.machine.devices[interval.resource.index];
  int64_t expected_ns = 0;
  for (int layer = interval.layer_begin; layer < interval.layer_end; ++layer) {
    expected_ns += device.RunNs(WorkNs(interval.kind, layer, costs_));
  }
  if (interval.length_ns() == expected_ns ||
      (interval.lost && interval.length_ns() < expected_ns)) {
    return absl::OkStatus();
  }
  return Violation(interval, absl::StrCat("takes ", interval.length_ns(),
                                          " ns, the costs say ", expected_ns));
}

absl::Status ComputeCheck::Enter(const Interval& interval, Table& table) {
  for (int layer = interval.layer_begin; layer < interval.layer_end; ++layer) {
    const Interval*& entry = table[Index(layer, interval.micro_batch)];
    if (entry != nullptr) {
      return Violation(interval,
                       absl::StrCat("layer ", layer, " a second time, after ",
                                    ToString(*entry)));
    }
    entry = &interval;
  }
  return absl::OkStatus();
}

void ComputeCheck::EnterLost(const Interval& interval) {
  const bool backward = interval.kind == WorkKind::kBackward ||
                        interval.kind == WorkKind::kHeadBackward ||
                        interval.kind == WorkKind::kFused;
  for (int layer = interval.layer_begin; layer < interval.layer_end; ++layer) {
    const int boundary = backward ? layer : layer + 1;
    const PassDirection direction =
        backward                                      ? PassDirection::kBackward
        : interval.direction == PassDirection::kAgain ? PassDirection::kAgain
                                                      : PassDirection::kForward;
    lost_makers_[{direction, boundary, interval.micro_batch}].push_back(
        &interval);
  }
}

absl::Status ComputeCheck::CheckComplete(int layer, int micro_batch) const {
  const size_t index = Index(layer, micro_batch);
  const char* missing = nullptr;
  if (forward_[index] == nullptr) missing = "forward";
  if (backward_[index] == nullptr) missing = "backward";
  if (missing != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("layer ", layer, " micro-batch ", micro_batch,
                     " is never run ", missing));
  }
  const Interval& backward = *backward_[index];
  const bool fused = backward.kind == WorkKind::kFused;
  const bool recomputed = recompute_[index] != nullptr;
  if (recomputed && (fused || layer == costs_.head())) {
    return Violation(backward,
                     absl::StrCat("layer ", layer, " is recomputed before it"));
  }
  if (fused && forward_[index] != backward_[index]) {
    return Violation(backward, "another interval ran its forward");
  }
  return absl::OkStatus();
}

// --- rule 2 ---

absl::Status ComputeCheck::CheckOverlap() {
  std::vector<const Interval*> order;
  for (const Interval& interval : schedule_.intervals) {
    if (interval.length_ns() > 0) order.push_back(&interval);
  }
  std::sort(order.begin(), order.end(),
            [](const Interval* a, const Interval* b) {
              return std::tie(a->resource, a->start_ns) <
                     std::tie(b->resource, b->start_ns);
            });
  for (size_t i = 1; i < order.size(); ++i) {
    const Interval& before = *order[i - 1];
    const Interval& after = *order[i];
    if (before.resource != after.resource) continue;
    if (IsCompute(after.kind)) before_[&after] = &before;
    if (after.start_ns < before.end_ns) {
      return Violation(after, absl::StrCat("overlaps ", ToString(before)));
    }
  }
  return absl::OkStatus();
}

// --- rule 4 ---

absl::Status ComputeCheck::CheckDependencies(const Delivery& delivery) const {
  for (int layer = 0; layer <= costs_.head(); ++layer) {
    for (int m = 0; m < options_.micro_batches; ++m) {
      RETURN_IF_ERROR(CheckForwardOf(delivery, layer, m));
      RETURN_IF_ERROR(CheckAgainOf(delivery, layer, m));
      RETURN_IF_ERROR(CheckRecomputeOf(delivery, layer, m));
      RETURN_IF_ERROR(CheckBackwardOf(delivery, layer, m));
    }
  }
  return absl::OkStatus();
}

absl::Status ComputeCheck::CheckArrival(
    const Delivery& delivery, const Delivery::Request& request) const {
  if (request.producer == request.consumer) return absl::OkStatus();
  const auto lost = lost_makers_.find(
      {request.direction, request.boundary, request.consumer->micro_batch});
  if (lost != lost_makers_.end()) {
    for (const Interval* maker : lost->second) {
      Delivery::Request earlier = request;
      earlier.producer = maker;
      earlier.same_part = false;
      const absl::StatusOr<int64_t> arrival_ns = delivery.Arrival(earlier);
      if (arrival_ns.ok() && request.consumer->start_ns >= *arrival_ns) {
        return absl::OkStatus();
      }
    }
  }
  ASSIGN_OR_RETURN(const int64_t arrival_ns, delivery.Arrival(request));
  if (request.consumer->start_ns >= arrival_ns) return absl::OkStatus();
  return Violation(
      *request.consumer,
      absl::StrCat(
          "starts before its ",
          request.direction == PassDirection::kBackward ? "gradient" : "input",
          " of layer ", request.boundary, " is there, at ", arrival_ns, " ns"));
}

// One part runs a micro-batch's layers without anything else in between, and
// recomputes all of them before the first backward.
bool ComputeCheck::SamePart(const Interval* producer, const Interval& consumer,
                            int layer) const {
  if (producer == nullptr) return false;
  const Interval* recompute = consumer.kind == WorkKind::kBackward
                                  ? Recompute(layer, consumer.micro_batch)
                                  : nullptr;
  if (recompute == nullptr) return Together(*producer, consumer);
  return producer->resource == consumer.resource &&
         producer->direction == consumer.direction &&
         producer->kind == consumer.kind &&
         recompute->start_ns < producer->start_ns;
}

bool ComputeCheck::Together(const Interval& first, const Interval& last) const {
  const Interval* interval = &last;
  while (interval != &first) {
    if (interval->kind == WorkKind::kRecompute) return false;
    const auto before = before_.find(interval);
    if (before == before_.end()) return false;
    interval = before->second;
    if (interval->micro_batch != last.micro_batch ||
        interval->direction != last.direction ||
        interval->attempt != last.attempt || interval->lost) {
      return false;
    }
  }
  return true;
}

absl::Status ComputeCheck::CheckForwardOf(const Delivery& delivery, int layer,
                                          int micro_batch) const {
  const Interval& consumer = Forward(layer, micro_batch);
  if (layer == costs_.head() && !options_.head_forward_waits) {
    return absl::OkStatus();
  }
  const Interval* producer =
      layer == 0 ? nullptr : &Forward(layer - 1, micro_batch);
  return CheckArrival(delivery,
                      {producer, &consumer, layer, PassDirection::kForward,
                       SamePart(producer, consumer, layer)});
}

bool ComputeCheck::Uploads(const Interval* user, const Interval* maker,
                           const Resource& device, int layer) const {
  return user != nullptr && user->resource == device && user != maker &&
         !SamePart(maker, *user, layer);
}

Delivery::Request ComputeCheck::SavedInput(const Interval& consumer, int layer,
                                           int micro_batch) const {
  const Interval* again = layer == 0 ? nullptr : Again(layer - 1, micro_batch);
  const Interval* producer = again != nullptr ? again
                             : layer == 0     ? nullptr
                                          : &Forward(layer - 1, micro_batch);
  Delivery::Request request{
      producer, &consumer, layer,
      again != nullptr ? PassDirection::kAgain : PassDirection::kForward};
  // Devices keep nothing: what another part had here is gone.
  const auto count = [&](const Interval* user) {
    if (user == &consumer) return;
    if (Uploads(user, producer, consumer.resource, layer)) ++request.other_uses;
  };
  if (again == nullptr) count(&Forward(layer, micro_batch));
  count(Again(layer, micro_batch));
  return request;
}

absl::Status ComputeCheck::CheckAgainOf(const Delivery& delivery, int layer,
                                        int micro_batch) const {
  const Interval* const consumer = Again(layer, micro_batch);
  if (consumer == nullptr) return absl::OkStatus();
  Delivery::Request request = SavedInput(*consumer, layer, micro_batch);
  request.same_part = request.direction == PassDirection::kAgain &&
                      SamePart(request.producer, *consumer, layer);
  return CheckArrival(delivery, request);
}

absl::Status ComputeCheck::CheckRecomputeOf(const Delivery& delivery, int layer,
                                            int micro_batch) const {
  const Interval* consumer = Recompute(layer, micro_batch);
  if (consumer == nullptr) return absl::OkStatus();
  const Interval& backward = Backward(layer, micro_batch);
  if (backward.resource != consumer->resource ||
      backward.start_ns < consumer->end_ns) {
    return Violation(backward, absl::StrCat("not on the device of, and after, ",
                                            ToString(*consumer)));
  }
  const Interval* before =
      layer == 0 ? nullptr : Recompute(layer - 1, micro_batch);
  // A later backward slot recomputes it only after this one: it is this slot's.
  if (before != nullptr && before->resource == consumer->resource &&
      (before == consumer || before->end_ns <= consumer->start_ns)) {
    return absl::OkStatus();
  }
  return CheckArrival(delivery, SavedInput(*consumer, layer, micro_batch));
}

absl::Status ComputeCheck::CheckBackwardOf(const Delivery& delivery, int layer,
                                           int micro_batch) const {
  const Interval& consumer = Backward(layer, micro_batch);
  if (layer < costs_.head()) {
    // What a fused part keeps it keeps until it computes something else.
    if (Recompute(layer, micro_batch) == nullptr &&
        !Together(Forward(layer, micro_batch), consumer)) {
      return Violation(consumer, absl::StrCat("layer ", layer,
                                              " is not recomputed before it"));
    }
    const Interval* producer = &Backward(layer + 1, micro_batch);
    return CheckArrival(
        delivery, {producer, &consumer, layer + 1, PassDirection::kBackward,
                   SamePart(producer, consumer, layer)});
  }
  const Interval& forward = Forward(layer, micro_batch);
  if (&forward == &consumer) return absl::OkStatus();
  // The head's backward follows its forward on one device; where that did not
  // wait for the input, this does.
  if (forward.resource != consumer.resource ||
      consumer.start_ns < forward.end_ns) {
    return Violation(consumer, absl::StrCat("not on the device of, and after, ",
                                            ToString(forward)));
  }
  if (options_.head_forward_waits) return absl::OkStatus();
  return CheckArrival(delivery, {&Forward(layer - 1, micro_batch), &consumer,
                                 layer, PassDirection::kForward});
}

}  // namespace roundhouse
