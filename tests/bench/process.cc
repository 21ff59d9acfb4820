#include "tests/bench/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace roundhouse::bench {

absl::StatusOr<std::unique_ptr<Process>> Process::Start(
    std::vector<std::string> command, const std::string& output) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, arguments[0], &files, nullptr,
                                arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot start ", command[0], ": ", std::strerror(error)));
  }
  return std::unique_ptr<Process>(new Process(pid, command[0], output));
}

Process::~Process() {
  if (reaped_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, &status_, 0);
}

void Process::Signal(int signal) {
  if (!reaped_) kill(pid_, signal);
}

bool Process::Running() {
  if (!reaped_) reaped_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return !reaped_;
}

absl::Status Process::Await() {
  if (!reaped_) reaped_ = waitpid(pid_, &status_, 0) == pid_;
  if (reaped_ && status_ == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(name_, " ended with wait status ",
                                          status_, "; see ", output_));
}

}  // namespace roundhouse::bench
