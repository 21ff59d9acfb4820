#include "server/jobs/link_rate.h"

#include <algorithm>
#include <numeric>

namespace roundhouse {

void LinkRate::Observe(const wire::SlotDone& done) {
  const int64_t busy_ns[] = {done.h2d_ns, done.d2h_ns};
  static_assert(static_cast<int>(wire::Direction::kH2D) == 0);
  for (int d = 0; d < wire::kDirections; ++d) {
    const uint64_t bytes = std::accumulate(std::begin(done.bytes[d]),
                                           std::end(done.bytes[d]), uint64_t{});
    if (bytes < kLeastBytes || busy_ns[d] <= 0) continue;
    fastest_[d] = std::max(fastest_[d], static_cast<double>(bytes) /
                                            static_cast<double>(busy_ns[d]));
  }
}

std::optional<double> LinkRate::bytes_per_ns() const {
  const double slower = *std::min_element(fastest_.begin(), fastest_.end());
  if (slower <= 0) return std::nullopt;
  return slower;
}

}  // namespace roundhouse
