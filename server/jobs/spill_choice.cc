#include "server/jobs/spill_choice.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace roundhouse {
namespace {

bool MayBeTaken(const SpillCandidate& candidate, const SpillNeed& need) {
  if (candidate.stays) return false;
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
  std::map<std::string, int> users;  // of bases
  for (const SpillCandidate& candidate : candidates) ++users[candidate.base];
  ++users[need.base];
  std::map<std::string, int> stay = users;
  std::vector<size_t> order;
  uint64_t all_bytes = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const SpillCandidate& candidate = candidates[i];
    if (!MayBeTaken(candidate, need)) continue;
    order.push_back(i);
    all_bytes += candidate.bytes;
    if (--stay[candidate.base] == 0) all_bytes += candidate.base_bytes;
  }
  if (order.empty() || all_bytes < need.bytes) return std::nullopt;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return GoesFirst(candidates[a], candidates[b]);
  });
  const auto enough = std::find_if(order.begin(), order.end(), [&](size_t i) {
    const SpillCandidate& candidate = candidates[i];
    const uint64_t base = users[candidate.base] == 1 ? candidate.base_bytes : 0;
    return candidate.bytes + base >= need.bytes;
  });
  return enough == order.end() ? order.front() : *enough;
}

}  // namespace roundhouse
