// The process that worker processes are forked from (worker/nursery.h), from
// the daemon's side.
//
// A nursery that died is started again by the next request.  One that does not
// answer in time is killed.  Makes the daemon a subreaper, so that the forked
// are its children.  Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WORKERS_NURSERY_H_
#define ROUNDHOUSE_SERVER_WORKERS_NURSERY_H_

#include <sys/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "base/wire/spawn.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"

namespace roundhouse {

struct NurseryOptions {
  std::string program;
  std::vector<std::string> environment;  // NAME=value, of all that are forked
  // For an answer, the start of the program included.
  absl::Duration answer_limit = absl::Seconds(60);
};

class Nursery {
 public:
  // The new process, of whom nobody but the caller knows; or why there is none.
  using Spawned = std::function<void(absl::StatusOr<pid_t>)>;

  Nursery(EventLoop& loop, NurseryOptions options)
      : loop_(loop), options_(std::move(options)) {}
  // Kills the nursery, not what was forked.  No call of a `spawned` follows.
  ~Nursery();

  // INTERNAL: the program could not be started; UNAVAILABLE: not now, for want
  // of descriptors, processes or memory.  Without effect while it runs.
  absl::Status Start();

  // Asks for a process, and first starts the nursery where there is none.
  // `spawned` is called later, in the order of the requests; with UNAVAILABLE
  // when the nursery dies first.  An error, and no call: as of Start, or
  // RESOURCE_EXHAUSTED while the nursery takes no requests.
  absl::Status Spawn(const wire::SpawnRequest& request, Spawned spawned);

  // 0 while there is none.
  pid_t pid() const { return process_ == nullptr ? 0 : process_->pid(); }

 private:
  void ReadAnswers();
  void OnExit(int wait_status);
  void Disconnect();
  // Until the first of the pending is answered.
  void RestartTimer();

  EventLoop& loop_;
  const NurseryOptions options_;
  std::unique_ptr<ChildProcess> process_;
  Descriptor socket_;
  std::deque<Spawned> pending_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_NURSERY_H_
