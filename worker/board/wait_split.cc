#include "worker/board/wait_split.h"

#include <algorithm>

namespace roundhouse::worker {

void SplitWait(int64_t began_ns, int64_t ended_ns,
               absl::Span<const Milestone> milestones, wire::WaitTimes& waits) {
  int64_t* of_cause = nullptr;
  for (const Milestone& milestone : milestones) {
    of_cause = &waits[static_cast<uint32_t>(milestone.cause)];
    const int64_t until_ns =
        std::max(began_ns, std::min(milestone.reached_ns, ended_ns));
    *of_cause += until_ns - began_ns;
    began_ns = until_ns;
  }
  *of_cause += std::max<int64_t>(0, ended_ns - began_ns);
}

}  // namespace roundhouse::worker
