// Keeps a worker's threads beside its GPU.
#ifndef ROUNDHOUSE_WORKER_NUMA_NODE_H_
#define ROUNDHOUSE_WORKER_NUMA_NODE_H_

#include <string>

#include "absl/status/status.h"
#include "base/cpu_list.h"

namespace roundhouse::worker {

// From now on the calling thread, and those that it starts, run on the CPUs of
// the NUMA node that this process may use; memory that they touch first is of
// that node, as long as it has some.  FAILED_PRECONDITION: there are none.
absl::Status RunOnNode(int node, const std::string& nodes = kNumaNodes);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_NUMA_NODE_H_
