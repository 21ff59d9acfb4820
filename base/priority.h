// How a job stands to others that want the same devices.
#ifndef ROUNDHOUSE_BASE_PRIORITY_H_
#define ROUNDHOUSE_BASE_PRIORITY_H_

#include <cstdint>
#include <optional>

namespace roundhouse {

// kUrgent: goes before all others, where its owner may say so.  kBackfill: gets
// what the others leave.  The greater one goes first.  The job store has the
// numbers.
enum class Priority { kBackfill = -1, kNormal = 0, kUrgent = 1 };

// All of them, the greatest first.
inline constexpr Priority kPriorities[] = {Priority::kUrgent, Priority::kNormal,
                                           Priority::kBackfill};

inline constexpr int kPriorityCount = 3;
// Its place among them.
inline constexpr int PriorityRank(Priority priority) {
  return static_cast<int>(Priority::kUrgent) - static_cast<int>(priority);
}

// As job files have it.
inline const char* PriorityName(Priority priority) {
  switch (priority) {
    case Priority::kUrgent:
      return "urgent";
    case Priority::kNormal:
      return "normal";
    case Priority::kBackfill:
      break;
  }
  return "backfill";
}

// nullopt: none has this number.
inline std::optional<Priority> PriorityFromNumber(int64_t number) {
  for (const Priority priority : kPriorities) {
    if (static_cast<int64_t>(priority) == number) return priority;
  }
  return std::nullopt;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_PRIORITY_H_
