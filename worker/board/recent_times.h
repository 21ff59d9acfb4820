// How long things took that happen again and again: the last kKept times of
// each.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_WORKER_BOARD_RECENT_TIMES_H_
#define ROUNDHOUSE_WORKER_BOARD_RECENT_TIMES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace roundhouse::worker {

struct TimeRange {
  int64_t shortest_ns = 0;
  int64_t longest_ns = 0;
};

template <typename Key>
class RecentTimes {
 public:
  static constexpr size_t kKept = 3;
  // It forgets everything where there would be more.
  static constexpr size_t kMostKeys = 4096;

  void Note(const Key& key, int64_t ns) {
    if (ns_.size() >= kMostKeys && !ns_.contains(key)) ns_.clear();
    std::vector<int64_t>& times = ns_[key];
    if (times.size() == kKept) times.erase(times.begin());
    times.push_back(ns);
  }

  // The range of the key.  None: nothing is known.
  std::optional<TimeRange> Range(const Key& key) const {
    const auto found = ns_.find(key);
    if (found == ns_.end()) return std::nullopt;
    const auto [shortest, longest] =
        std::minmax_element(found->second.begin(), found->second.end());
    return TimeRange{*shortest, *longest};
  }

 private:
  std::map<Key, std::vector<int64_t>> ns_;  // the newest last
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_RECENT_TIMES_H_
