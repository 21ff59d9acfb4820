#include "server/workers/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/log.h"

namespace roundhouse {

uint64_t RaiseDescriptorLimit() {
  struct rlimit limit = {};
  ROUNDHOUSE_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur =
      std::max(before, std::min<rlim_t>(limit.rlim_max, kMostDescriptors));
  // Refused by a policy of the system's: what was there is there.
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

}  // namespace roundhouse
