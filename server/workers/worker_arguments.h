// What a worker's process is started with.  Pure but for the sanitizers'
// settings, which it inherits.
#ifndef ROUNDHOUSE_SERVER_WORKERS_WORKER_ARGUMENTS_H_
#define ROUNDHOUSE_SERVER_WORKERS_WORKER_ARGUMENTS_H_

#include <string>
#include <vector>

#include "server/workers/process_pool.h"

namespace roundhouse {

const char* RoleName(WorkerRole role);

struct WorkerStart {
  WorkerId id{};
  WorkerRole role = WorkerRole::kDevice;
  int threads = 1;
  bool again = false;  // another process was there before it
};

// Its descriptors are, from kFirstChildFd on: channel, arena, and the daemon's
// lock where it has one.
std::vector<std::string> WorkerArguments(const ProcessPoolOptions& options,
                                         const WorkerStart& start);

// NAME=value, for workers of so many compute threads.
std::vector<std::string> WorkerEnvironment(int threads);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_WORKER_ARGUMENTS_H_
