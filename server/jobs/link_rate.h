// How fast a job's bytes cross the devices' links, for the plans that are
// searched for.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_JOBS_LINK_RATE_H_
#define ROUNDHOUSE_SERVER_JOBS_LINK_RATE_H_

#include <array>
#include <cstdint>
#include <optional>

#include "base/wire/messages.h"

namespace roundhouse {

class LinkRate {
 public:
  // Slots that moved less in a direction say more of threads than of links.
  static constexpr uint64_t kLeastBytes = uint64_t{16} << 20;

  void Observe(const wire::SlotDone& done);

  // Bytes per nanosecond, of the slower direction's fastest slot: what links
  // lose to each other in host memory is for the simulator to say.  Nothing
  // while a direction has no such slot.
  std::optional<double> bytes_per_ns() const;

 private:
  std::array<double, wire::kDirections> fastest_ = {};
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_LINK_RATE_H_
