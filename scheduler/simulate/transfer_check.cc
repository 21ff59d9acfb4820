#include "scheduler/simulate/transfer_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "scheduler/simulate/device_memory.h"

namespace roundhouse {
namespace {

// Bytes and nanoseconds are whole, so a piece may carry one byte too many.
constexpr double kRoundingBytes = 1;
constexpr double kRelative = 1e-9;

double LeastRate(const Interval& interval) {
  return std::max(0.0, (static_cast<double>(interval.bytes) - kRoundingBytes) /
                           static_cast<double>(interval.length_ns()));
}

std::vector<const Interval*> ByStart(const Schedule& schedule) {
  std::vector<const Interval*> order;
  for (const Interval& interval : schedule.intervals) {
    order.push_back(&interval);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Interval* a, const Interval* b) {
                     return a->start_ns < b->start_ns;
                   });
  return order;
}

absl::Status LayerViolation(int layer, const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("layer ", layer, ": ", why));
}

}  // namespace

// --- activations ---

LinkDelivery::LinkDelivery(const Schedule& schedule, const ModelCosts& costs)
    : costs_(costs) {
  // The start and bytes of transfers that are not yet whole.
  std::map<Key, std::pair<int64_t, int64_t>> open;  // start, bytes
  for (const Interval* interval : ByStart(schedule)) {
    if (interval->kind != WorkKind::kActivations || interval->lost) continue;
    const Key key{interval->resource, interval->layer_begin,
                  interval->direction, interval->micro_batch};
    auto& [start_ns, bytes] =
        open.try_emplace(key, interval->start_ns, 0).first->second;
    bytes += interval->bytes;
    if (bytes < costs.BoundaryBytes()) continue;
    transfers_[key].push_back({start_ns, interval->end_ns});
    open.erase(key);
  }
}

absl::StatusOr<int64_t> LinkDelivery::FirstEnd(const Request& request,
                                               Resource link, int64_t from_ns,
                                               int skipped) const {
  const Key key{link, request.boundary, request.direction,
                request.consumer->micro_batch};
  const auto found = transfers_.find(key);
  if (found != transfers_.end()) {
    for (const Whole& whole : found->second) {
      if (whole.start_ns >= from_ns && skipped-- == 0) return whole.end_ns;
    }
  }
  return Violation(*request.consumer,
                   absl::StrCat("what it needs at layer ", request.boundary,
                                " does not cross ", ResourceName(link),
                                " after ", from_ns, " ns"));
}

absl::StatusOr<int64_t> LinkDelivery::Arrival(const Request& request) const {
  const Interval* producer = request.producer;
  const int64_t made_ns = producer == nullptr ? 0 : producer->end_ns;
  if (request.same_part || costs_.BoundaryBytes() == 0) return made_ns;
  int64_t in_host_ns = 0;
  if (producer != nullptr) {
    const Resource down{ResourceType::kD2h, producer->resource.index};
    ASSIGN_OR_RETURN(in_host_ns, FirstEnd(request, down, made_ns, 0));
  }
  const Resource up{ResourceType::kH2d, request.consumer->resource.index};
  return FirstEnd(request, up, in_host_ns, request.other_uses);
}

// --- everything else ---

TransferCheck::TransferCheck(const Schedule& schedule, const ModelCosts& costs,
                             const CheckOptions& options,
                             Contributions contributions)
    : schedule_(schedule),
      costs_(costs),
      options_(options),
      contributions_(contributions) {
  // Forward work in a backward part is a fused one's.
  for (const WorkKind kind : {WorkKind::kForward, WorkKind::kBackward}) {
    for (const Interval& interval : schedule.intervals) {
      if (interval.lost || interval.kind != kind ||
          interval.direction != PassDirection::kBackward) {
        continue;
      }
      for (int l = interval.layer_begin; l < interval.layer_end; ++l) {
        const Pass pass{interval.attempt, interval.micro_batch, l};
        if (kind == WorkKind::kForward || kept_until_ns_.contains(pass)) {
          kept_until_ns_[pass] = interval.end_ns;
        }
      }
    }
  }
  for (const Interval& interval : schedule.intervals) {
    const WorkKind kind = interval.kind;
    const bool backward = kind == WorkKind::kBackward ||
                          kind == WorkKind::kHeadBackward ||
                          kind == WorkKind::kFused;
    if (backward) {
      const auto [first, added] = first_micro_batch_.try_emplace(
          interval.attempt, interval.micro_batch);
      first->second = std::min(first->second, interval.micro_batch);
    }
    if (interval.lost && !backward) continue;
    for (int l = interval.layer_begin; l < interval.layer_end; ++l) {
      const Use use{interval.resource.index, l, interval.direction,
                    interval.attempt};
      if (interval.lost) {
        Extend(given_up_, use, interval);
        continue;
      }
      if (IsCompute(kind)) Extend(compute_, use, interval);
      if (backward) Extend(backward_, use, interval);
      if (kind == WorkKind::kWeights) Extend(weights_, use, interval);
      if (kind == WorkKind::kGradients) Extend(gradients_, use, interval);
      if (kind != WorkKind::kReduce) continue;
      const auto [entry, first] =
          reduce_.try_emplace(l, Span{interval.start_ns, 0, 0});
      Span& span = entry->second;
      span.begin_ns = std::min(span.begin_ns, interval.start_ns);
      span.bytes += interval.bytes;
    }
  }
}

void TransferCheck::Extend(Spans& spans, const Use& use,
                           const Interval& interval) {
  const auto [entry, first] =
      spans.try_emplace(use, Span{interval.start_ns, interval.end_ns, 0});
  Span& span = entry->second;
  span.begin_ns = std::min(span.begin_ns, interval.start_ns);
  span.end_ns = std::max(span.end_ns, interval.end_ns);
  span.bytes += interval.bytes;
}

absl::Status TransferCheck::CheckRates() const {
  for (const Interval& interval : schedule_.intervals) {
    if (IsCompute(interval.kind)) continue;
    const bool host = interval.resource.type == ResourceType::kHost;
    double limit =
        host ? options_.machine.HostWorkRate() : options_.machine.link_rate;
    if (interval.kind == WorkKind::kOptimizer) {
      limit = std::min(limit, MostUpdateBytesRate(options_.updates));
    }
    if (interval.length_ns() == 0 ||
        LeastRate(interval) > limit * (1 + kRelative)) {
      return Violation(
          interval, absl::StrCat("moves ", interval.bytes, " bytes, more than ",
                                 limit, " a nanosecond"));
    }
  }
  return CheckHostRate();
}

absl::Status TransferCheck::CheckHostRate() const {
  std::vector<std::pair<int64_t, double>> changes;
  for (const Interval& interval : schedule_.intervals) {
    if (IsCompute(interval.kind)) continue;
    const bool host = interval.resource.type == ResourceType::kHost;
    if (!host && !options_.machine.links_share_host_rate) continue;
    const double rate = LeastRate(interval);
    changes.emplace_back(interval.end_ns, -rate);
    changes.emplace_back(interval.start_ns, rate);
  }
  // Ends sort before starts of the same moment: their rates are negative.
  std::sort(changes.begin(), changes.end());
  double rate = 0;
  for (const auto& [time_ns, change] : changes) {
    rate += change;
    // The sum itself rounds.
    if (rate > options_.machine.host_rate * (1 + 1e-6)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "at ", time_ns, " ns all transfers together move ", rate,
          " bytes a nanosecond, host memory ", options_.machine.host_rate));
    }
  }
  return absl::OkStatus();
}

absl::Status TransferCheck::CheckWeights() const {
  for (const auto& [use, span] : compute_) {
    const auto& [device, layer, direction, attempt] = use;
    const int64_t bytes = costs_.WeightBytes(layer);
    if (bytes == 0) continue;
    const auto up = weights_.find(use);
    const int64_t moved = up == weights_.end() ? 0 : up->second.bytes;
    if (moved != bytes || up->second.end_ns > span.begin_ns) {
      return LayerViolation(
          layer, absl::StrCat("device ", device, " uses it ",
                              PassDirectionName(direction), " from ",
                              span.begin_ns, " ns; ", moved, " of ", bytes,
                              " bytes of weights went up",
                              moved == bytes ? ", too late" : ""));
    }
  }
  for (const auto& [use, span] : weights_) {
    const auto& [device, layer, direction, attempt] = use;
    if (!compute_.contains(use)) {
      return LayerViolation(layer, absl::StrCat("its weights go up to device ",
                                                device, " for no use"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TransferCheck::SentBefore> TransferCheck::FindSentBefore()
    const {
  SentBefore sent;
  sent.contributions.resize(costs_.layers + 1);
  sent.down_ns.resize(costs_.layers + 1);
  for (const auto& [use, span] : gradients_) {
    if (backward_.contains(use)) continue;
    const int layer = std::get<1>(use);
    const int64_t one = ContributionBytes(costs_, layer, contributions_);
    const auto made = given_up_.find(use);
    if (one == 0 || span.bytes == 0 || span.bytes % one != 0 ||
        made == given_up_.end() || span.begin_ns < made->second.end_ns) {
      return LayerViolation(layer, "gradients go down that nobody made");
    }
    const int part = first_micro_batch_.at(std::get<3>(use));
    if (!sent.parts.insert({layer, part}).second) {
      return LayerViolation(layer, "a part sends its gradients twice");
    }
    sent.contributions[layer] += span.bytes / one;
    sent.down_ns[layer] = std::max(sent.down_ns[layer], span.end_ns);
  }
  return sent;
}

absl::Status TransferCheck::CheckGradients() const {
  ASSIGN_OR_RETURN(SentBefore before, FindSentBefore());
  std::vector<int64_t> contributions = std::move(before.contributions);
  std::vector<int64_t> down_ns = std::move(before.down_ns);
  for (const auto& [use, span] : backward_) {
    const auto& [device, layer, direction, attempt] = use;
    const int64_t one = ContributionBytes(costs_, layer, contributions_);
    if (one == 0) continue;
    const auto down = gradients_.find(use);
    const int64_t moved = down == gradients_.end() ? 0 : down->second.bytes;
    const std::pair part = {layer, first_micro_batch_.at(attempt)};
    if (moved == 0 && before.parts.erase(part) > 0) continue;
    if (moved == 0 || moved % one != 0) {
      return LayerViolation(
          layer, absl::StrCat(moved, " bytes of gradients go down from device ",
                              device, ": not whole contributions of ", one));
    }
    if (down->second.begin_ns < span.end_ns) {
      return LayerViolation(
          layer, absl::StrCat("its gradients go down from device ", device,
                              " before its last backward"));
    }
    contributions[layer] += moved / one;
    down_ns[layer] = std::max(down_ns[layer], down->second.end_ns);
  }
  if (!before.parts.empty()) {
    return LayerViolation(before.parts.begin()->first,
                          "a part sends its gradients twice");
  }
  for (int layer = 0; layer <= costs_.head(); ++layer) {
    RETURN_IF_ERROR(
        CheckReduction(layer, contributions[layer], down_ns[layer]));
  }
  return absl::OkStatus();
}

absl::Status TransferCheck::CheckReduction(int layer, int64_t contributions,
                                           int64_t down_ns) const {
  const auto found = reduce_.find(layer);
  const int64_t moved = found == reduce_.end() ? 0 : found->second.bytes;
  int64_t expected = 0;
  if (contributions > 0) {
    expected = ReduceBytes(costs_, layer, contributions_, options_.updates,
                           contributions);
    if (options_.adds_to_sum) expected += AddToSumBytes(costs_, layer);
  }
  if (moved != expected) {
    return LayerViolation(layer, absl::StrCat("reducing it moves ", moved,
                                              " bytes, not ", expected));
  }
  if (moved > 0 && found->second.begin_ns < down_ns) {
    return LayerViolation(layer,
                          "it is reduced before its last contribution is down");
  }
  return absl::OkStatus();
}

absl::Status TransferCheck::CheckEmbeddingGradients() const {
  const int64_t bytes = costs_.BoundaryBytes();
  if (!TrainsEmbedding(costs_) || bytes == 0) return absl::OkStatus();
  std::vector<int64_t> made_ns(options_.micro_batches);
  for (const Interval& interval : schedule_.intervals) {
    const bool backward = interval.kind == WorkKind::kBackward ||
                          interval.kind == WorkKind::kFused;
    if (backward && interval.layer_begin == 0) {
      int64_t& made = made_ns[interval.micro_batch];
      made = made == 0 ? interval.end_ns : std::min(made, interval.end_ns);
    }
  }
  std::vector<int64_t> moved(options_.micro_batches);
  for (const Interval& interval : schedule_.intervals) {
    if (interval.kind != WorkKind::kActivations || interval.lost ||
        interval.layer_begin != 0 ||
        interval.direction != PassDirection::kBackward) {
      continue;
    }
    if (interval.start_ns < made_ns[interval.micro_batch]) {
      return Violation(interval, "goes down before it is made");
    }
    moved[interval.micro_batch] += interval.bytes;
  }
  for (int m = 0; m < options_.micro_batches; ++m) {
    if (moved[m] == bytes) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("micro-batch ", m, ": ", moved[m], " of ", bytes,
                     " bytes of the embedding's gradient go down"));
  }
  return absl::OkStatus();
}

absl::Status TransferCheck::CheckMemory() const {
  for (int d = 0; d < options_.machine.device_count(); ++d) {
    Changes changes;
    AppendHolds(d, changes);
    RETURN_IF_ERROR(
        CheckHolds(d, std::move(changes), costs_, options_.machine));
  }
  return absl::OkStatus();
}

void TransferCheck::AppendHolds(int device, Changes& changes) const {
  auto hold = [&](int64_t begin_ns, int64_t end_ns, int64_t bytes) {
    changes.emplace_back(begin_ns, bytes);
    changes.emplace_back(end_ns, -bytes);
  };
  for (const auto& [use, span] : weights_) {
    if (std::get<0>(use) != device) continue;
    hold(span.begin_ns, compute_.at(use).end_ns, span.bytes);
  }
  for (const auto& [use, span] : gradients_) {
    if (std::get<0>(use) != device) continue;
    const Spans& made = backward_.contains(use) ? backward_ : given_up_;
    hold(made.at(use).begin_ns, span.end_ns,
         SumBytes(costs_, std::get<1>(use)));
  }
  for (const Interval& interval : schedule_.intervals) {
    if (!interval.lost &&
        interval.resource == Resource{ResourceType::kCompute, device}) {
      AppendActivations(interval, changes);
    }
  }
}

// Inner ones of a micro-batch: of a forward part one layer's at a time, of a
// fused one from a layer's forward to its backward, else at least while a
// block's backward runs.
void TransferCheck::AppendActivations(const Interval& compute,
                                      Changes& changes) const {
  int64_t at_once = 0, together = 0;
  for (int l = compute.layer_begin; l < compute.layer_end; ++l) {
    const int64_t bytes = ActivationBytes(costs_, l);
    const auto kept =
        kept_until_ns_.find({compute.attempt, compute.micro_batch, l});
    if (kept == kept_until_ns_.end()) {
      at_once = std::max(at_once, bytes);
      together += bytes;
    } else if (compute.kind == WorkKind::kForward) {
      changes.emplace_back(compute.start_ns, bytes);
      changes.emplace_back(kept->second, -bytes);
    }
  }
  const int64_t inner = compute.kind == WorkKind::kForward ? at_once : together;
  changes.emplace_back(compute.start_ns, inner);
  changes.emplace_back(compute.end_ns, -inner);
}

absl::Status TransferCheck::CheckHolds(int device, Changes changes,
                                       const ModelCosts& costs,
                                       const Machine& machine) {
  std::sort(changes.begin(), changes.end());
  int64_t held = BoundaryBufferBytes(costs), peak = held;
  for (const auto& [time_ns, bytes] : changes) {
    held += bytes;
    peak = std::max(peak, held);
  }
  const int64_t memory = machine.devices[device].memory_bytes;
  if (peak <= memory) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("device ", device, " holds ", peak, " bytes of ", memory));
}

}  // namespace roundhouse
