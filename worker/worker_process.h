// For tests of worker programs.
#ifndef ROUNDHOUSE_WORKER_WORKER_PROCESS_H_
#define ROUNDHOUSE_WORKER_WORKER_PROCESS_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/wire/arena.h"
#include "base/wire/channel.h"
#include "gtest/gtest.h"

namespace roundhouse::worker {

// A worker program started as the daemon starts it: its channel and its exit.
//
// Thread-compatible; kills what still runs.
class WorkerProcess {
 public:
  WorkerProcess(const std::string& program, const wire::Arena& arena,
                std::vector<std::string> flags) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const int arena_fd = dup(arena.fd());  // without close-on-exec
    flags.insert(flags.begin(), program);
    flags.push_back("--channel-fd=" + std::to_string(ends[1]));
    flags.push_back("--arena-fd=" + std::to_string(arena_fd));
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      execv(program.c_str(), argv.data());
      _exit(99);
    }
    close(ends[1]);
    close(arena_fd);
    channel_ = std::make_unique<wire::Channel>(ends[0]);
  }
  ~WorkerProcess() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) Exit();
  }

  wire::Channel& channel() { return *channel_; }
  void HangUp() { channel_.reset(); }
  int Exit() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  std::unique_ptr<wire::Channel> channel_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_WORKER_PROCESS_H_
