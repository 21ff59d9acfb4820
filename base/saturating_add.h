// Sums of what others say, which are not to overflow.
//
// Pure; thread-safe.
#ifndef ROUNDHOUSE_BASE_SATURATING_ADD_H_
#define ROUNDHOUSE_BASE_SATURATING_ADD_H_

#include <algorithm>
#include <cstdint>
#include <limits>

namespace roundhouse {

// The sum, or the largest number; `more` below 0 counts as 0.
inline int64_t SaturatingAdd(int64_t sum, int64_t more) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return sum + std::clamp<int64_t>(more, 0, kMost - std::max<int64_t>(sum, 0));
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_SATURATING_ADD_H_
