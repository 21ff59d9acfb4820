// At most so many a second, and as many at once after a second's rest.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DOOR_TOKEN_BUCKET_H_
#define ROUNDHOUSE_SERVER_DOOR_TOKEN_BUCKET_H_

#include <algorithm>

#include "absl/time/time.h"

namespace roundhouse {

class TokenBucket {
 public:
  // Full.
  TokenBucket(double per_second, absl::Time now)
      : per_second_(per_second), tokens_(per_second), filled_at_(now) {}

  // Whether it is as a new one.
  bool IsFull(absl::Time now) const {
    return tokens_ + absl::ToDoubleSeconds(now - filled_at_) * per_second_ >=
           per_second_;
  }
  // False: none is there.
  bool Take(absl::Time now) {
    const double seconds = absl::ToDoubleSeconds(now - filled_at_);
    // A clock that was set back takes nothing away.
    if (seconds > 0) {
      tokens_ = std::min(per_second_, tokens_ + seconds * per_second_);
    }
    filled_at_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  const double per_second_;
  double tokens_;
  absl::Time filled_at_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_TOKEN_BUCKET_H_
