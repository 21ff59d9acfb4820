#include "server/jobs/spill_choice.h"

#include <algorithm>
#include <tuple>

namespace roundhouse {
namespace {

bool MayBeTaken(const SpillCandidate& candidate, const SpillNeed& need) {
  if (candidate.rests) return need.bytes > 0;
  return need.priority > candidate.priority;
}

bool GoesFirst(const SpillCandidate& a, const SpillCandidate& b) {
  if (a.rests != b.rests) return a.rests;
  if (a.rests) return std::tie(a.since, a.number) < std::tie(b.since, b.number);
  if (a.priority != b.priority) return a.priority < b.priority;
  if (a.turn != b.turn) return a.turn > b.turn;
  return a.number > b.number;
}

}  // namespace

std::optional<size_t> ChooseSpill(const std::vector<SpillCandidate>& candidates,
                                  const SpillNeed& need) {
  std::vector<size_t> order;
  uint64_t all_bytes = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!MayBeTaken(candidates[i], need)) continue;
    order.push_back(i);
    all_bytes += candidates[i].bytes;
  }
  if (order.empty() || all_bytes < need.bytes) return std::nullopt;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return GoesFirst(candidates[a], candidates[b]);
  });
  const auto enough = std::find_if(order.begin(), order.end(), [&](size_t i) {
    return candidates[i].bytes >= need.bytes;
  });
  return enough == order.end() ? order.front() : *enough;
}

}  // namespace roundhouse
