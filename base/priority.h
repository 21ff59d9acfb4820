// How a job stands to others that want the same devices.
#ifndef ROUNDHOUSE_BASE_PRIORITY_H_
#define ROUNDHOUSE_BASE_PRIORITY_H_

#include <cstdint>
#include <optional>

namespace roundhouse {

// kUrgent: goes before all others, where its owner may say so.  The greater one
// goes first.  The job store has the numbers.
enum class Priority { kNormal = 0, kUrgent = 1 };

// As job files have it.
inline const char* PriorityName(Priority priority) {
  return priority == Priority::kUrgent ? "urgent" : "normal";
}

// nullopt: none has this number.
inline std::optional<Priority> PriorityFromNumber(int64_t number) {
  if (number != 0 && number != 1) return std::nullopt;
  return static_cast<Priority>(number);
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_PRIORITY_H_
