#include "worker/numa_node.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse::worker {

absl::Status RunOnNode(int node, const std::string& nodes) {
  ASSIGN_OR_RETURN(const std::vector<int> cpus,
                   ReadCpuList(absl::StrCat(nodes, "/node", node, "/cpulist")));
  // As many CPUs as kMaxCpuNumber: more than a cpu_set_t has.
  std::vector<cpu_set_t> allowed((kMaxCpuNumber + 1) / CPU_SETSIZE);
  std::vector<cpu_set_t> beside(allowed.size());
  const size_t bytes = allowed.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, bytes, allowed.data()) != 0) {
    return absl::InternalError(
        absl::StrCat("sched_getaffinity: ", std::strerror(errno)));
  }
  for (const int cpu : cpus) {
    if (CPU_ISSET_S(cpu, bytes, allowed.data())) {
      CPU_SET_S(cpu, bytes, beside.data());
    }
  }
  if (CPU_COUNT_S(bytes, beside.data()) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("this process may use no CPU of NUMA node ", node));
  }
  if (sched_setaffinity(0, bytes, beside.data()) != 0) {
    return absl::InternalError(
        absl::StrCat("sched_setaffinity: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse::worker
