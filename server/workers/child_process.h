// One child process of the daemon: started with descriptors of our choosing,
// its stderr kept, its death noticed.
//
// Runs on the event loop's thread.  The child gets SIGKILL when the daemon's
// loop thread dies (the worker asks for that itself).  Workers inherit the
// daemon's lock, so that a new daemon waits until all of them are gone.
#ifndef ROUNDHOUSE_SERVER_WORKERS_CHILD_PROCESS_H_
#define ROUNDHOUSE_SERVER_WORKERS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files/descriptor.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

// The last bytes of a child's stderr that are kept for error messages.
inline constexpr size_t kStderrTailBytes = 16 * 1024;

struct ChildOptions {
  std::string program;  // path
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // NAME=value; nothing is inherited
  // Inherited as kFirstChildFd, kFirstChildFd + 1, ...; all others are closed.
  std::vector<int> descriptors;
  bool capture_stdout = false;  // else it goes to stderr's pipe
  // What it starts is killed when it has ended, and reaped: the daemon is the
  // parent of processes that have lost theirs.
  bool ends_group = false;
};

inline constexpr int kFirstChildFd = 3;

// The error of a system call: UNAVAILABLE where descriptors, processes or
// memory have run out, which passes (try again later), else INTERNAL.
absl::Status ShortageOr(const std::string& what, int error);

// UNAVAILABLE while this process could not open `count` descriptors more.
// Another thread may take them in the next moment: it keeps work from being
// begun that is likely to fail half-way.  Any thread.
absl::Status CheckDescriptorsLeft(int count);

// A pipe for a child's output, both ends close-on-exec, reading without
// blocking.
struct OutputPipe {
  Descriptor read_end;
  Descriptor write_end;
};
absl::StatusOr<OutputPipe> MakeOutputPipe();

// How a child ended: "killed by signal 9", "exited with status 3".
std::string DescribeExit(int wait_status);

// A child, for who starts some in another way in tests (ChildStarter).
class Child {
 public:
  virtual ~Child() = default;
  virtual void Kill(int signal) = 0;
  // The last kStderrTailBytes the child wrote to stderr.
  virtual const std::string& stderr_tail() const = 0;
};

class ChildProcess final : public Child {
 public:
  // `on_exit` is called once, with the wait status, after the child has been
  // reaped and its output read to the end.  `on_stdout` gets what it printed,
  // when captured.  INTERNAL: it could not be started; UNAVAILABLE: not now
  // (ShortageOr).
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      EventLoop& loop, const ChildOptions& options,
      std::function<void(int wait_status)> on_exit,
      std::function<void(const std::string&)> on_stdout = nullptr);
  // The same of a child that another process made for this one
  // (server/workers/nursery.h).  `errors` is the reading end of its stderr
  // and its stdout, not blocking.  Where it
  // can't be watched the process is killed; errors as of Start.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Adopt(
      EventLoop& loop, pid_t pid, Descriptor errors,
      std::function<void(int wait_status)> on_exit);
  // Kills the child if it lives and reaps it; no callback follows.  One that a
  // hanging call of a driver keeps alive is left behind after a second.
  ~ChildProcess() override;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Kill(int signal) override;
  pid_t pid() const { return pid_; }
  const std::string& stderr_tail() const override { return stderr_tail_; }

 private:
  ChildProcess(EventLoop& loop, std::function<void(int)> on_exit,
               std::function<void(const std::string&)> on_stdout);

  absl::Status WatchAll();
  void Reap();
  void OnExit();
  void ReadStderr();
  void ReadStdout();

  EventLoop& loop_;
  std::function<void(int)> on_exit_;
  std::function<void(const std::string&)> on_stdout_;
  pid_t pid_ = -1;
  Descriptor pid_fd_;
  Descriptor stderr_;
  Descriptor stdout_;
  bool reaped_ = false;
  bool ends_group_ = false;
  std::string stderr_tail_;
};

// As ChildProcess::Start, which it is outside tests.
using ChildStarter = std::function<absl::StatusOr<std::unique_ptr<Child>>(
    EventLoop& loop, const ChildOptions& options,
    std::function<void(int wait_status)> on_exit,
    std::function<void(const std::string&)> on_stdout)>;

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_CHILD_PROCESS_H_
