#include "server/dataset/helper_lanes.h"

#include <algorithm>

#include "base/log.h"

namespace roundhouse {

void HelperLanes::Add(const std::string& id, HelperLane lane,
                      const std::string& principal) {
  ROUNDHOUSE_CHECK(!Has(id)) << id;
  entries_.push_back({id, lane, principal});
}

std::optional<std::string> HelperLanes::TakeNext() {
  for (const HelperLane lane : {HelperLane::kShort, HelperLane::kLong}) {
    const size_t slots = lane == HelperLane::kShort ? limits_.short_running
                                                    : limits_.long_running;
    if (Running(lane) >= slots) continue;
    const auto next = NextOf(lane);
    if (next == entries_.end()) continue;
    next->running = true;
    return next->id;
  }
  return std::nullopt;
}

std::list<HelperLanes::Entry>::iterator HelperLanes::NextOf(HelperLane lane) {
  auto next = entries_.end();
  size_t fewest = limits_.running_each;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->running || entry->lane != lane) continue;
    const size_t running = RunningFor(lane, entry->principal);
    if (running >= fewest) continue;
    fewest = running;
    next = entry;
  }
  return next;
}

void HelperLanes::Remove(const std::string& id) {
  entries_.remove_if([&](const Entry& entry) { return entry.id == id; });
}

bool HelperLanes::Has(const std::string& id) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.id == id; });
}

bool HelperLanes::Runs(const std::string& id) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.id == id && entry.running;
  });
}

size_t HelperLanes::Running(HelperLane lane) const {
  return std::count_if(
      entries_.begin(), entries_.end(),
      [&](const Entry& entry) { return entry.running && entry.lane == lane; });
}

size_t HelperLanes::RunningFor(HelperLane lane,
                               const std::string& principal) const {
  if (principal.empty()) return 0;
  return std::count_if(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) {
                         return entry.running && entry.lane == lane &&
                                entry.principal == principal;
                       });
}

size_t HelperLanes::Waiting(HelperLane lane) const {
  return std::count_if(
      entries_.begin(), entries_.end(),
      [&](const Entry& entry) { return !entry.running && entry.lane == lane; });
}

size_t HelperLanes::Waiting(HelperLane lane,
                            const std::string& principal) const {
  return std::count_if(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) {
                         return !entry.running && entry.lane == lane &&
                                entry.principal == principal;
                       });
}

}  // namespace roundhouse
