// A nursery is a worker program that has loaded its libraries and waits.  The
// daemon's worker processes are forked from it: a new one is there in
// milliseconds (LibTorch takes a third of a second of CPU time to load) and
// shares with its siblings the memory that loading wrote.
//
//   roundhouse-worker --role=nursery --channel-fd=3
//
// It has one thread, opens no device and maps no arena, so that a fork of it is
// a fresh process.  The forked are the daemon's children, which must be a
// subreaper (PR_SET_CHILD_SUBREAPER); the nursery's death takes none with it.
#ifndef ROUNDHOUSE_WORKER_NURSERY_H_
#define ROUNDHOUSE_WORKER_NURSERY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roundhouse::worker {

// Forks a process for every request on `fd` (base/wire/spawn.h), which it owns.
// Returns in each of them, with its arguments; its descriptors are those of the
// request, 0 and nothing else, its process group its own.  In the nursery it
// returns, with nothing, when the daemon is gone.
absl::StatusOr<std::optional<std::vector<std::string>>> RunNursery(int fd);

// Shows `arguments` in place of those that `argv` came with, where ps and the
// daemon's children are looked at; cuts off what does not fit.  The nursery's
// --room makes room for them.
// REQUIRES: `argv` is main's, and nothing keeps pointers to its strings.
void ShowArguments(int argc, char** argv,
                   const std::vector<std::string>& arguments);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_NURSERY_H_
