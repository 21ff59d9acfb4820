#include "server/admission/validation_order.h"

#include <algorithm>

namespace roundhouse {

void ValidationOrder::Began(int64_t job, int64_t now_ns) {
  began_[job] = now_ns;
}

void ValidationOrder::Ready(int64_t job) {
  if (began_.erase(job) > 0) ready_.insert(job);
}

void ValidationOrder::Drop(int64_t job) {
  began_.erase(job);
  ready_.erase(job);
}

int64_t ValidationOrder::HeldFor(int64_t job, int64_t now_ns) const {
  int64_t longest = 0;
  for (const auto& [earlier, began_ns] : began_) {
    if (earlier >= job) break;
    longest = std::max(longest, began_ns + limit_ns_ - now_ns);
  }
  return longest;
}

std::optional<int64_t> ValidationOrder::TakeReady(int64_t now_ns) {
  // What holds the first holds the others too.
  if (ready_.empty() || HeldFor(*ready_.begin(), now_ns) > 0) {
    return std::nullopt;
  }
  return ready_.extract(ready_.begin()).value();
}

std::optional<absl::Duration> ValidationOrder::NextIn(int64_t now_ns) const {
  if (ready_.empty()) return std::nullopt;
  return absl::Nanoseconds(HeldFor(*ready_.begin(), now_ns));
}

}  // namespace roundhouse
