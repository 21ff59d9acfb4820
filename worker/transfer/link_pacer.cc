#include "worker/transfer/link_pacer.h"

#include <algorithm>

#include "base/log.h"

namespace roundhouse::worker {

LinkPacer::LinkPacer(double gbps) : ns_per_byte_(gbps > 0 ? 8 / gbps : 0) {
  ROUNDHOUSE_CHECK(gbps >= 0) << gbps;
}

int64_t LinkPacer::Carry(int64_t now_ns, uint64_t bytes) {
  if (ns_per_byte_ == 0) return now_ns;
  free_at_ns_ = std::max(free_at_ns_, static_cast<double>(now_ns)) +
                ns_per_byte_ * static_cast<double>(bytes);
  return static_cast<int64_t>(free_at_ns_);
}

}  // namespace roundhouse::worker
