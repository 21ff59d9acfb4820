#include "server/pool/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr int kFirstTemporaryFd = 128;
constexpr int kReapMs = 1000;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) {
    pointers.push_back(const_cast<char*>(s.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status ErrnoStatus(const std::string& what, int error) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(error)));
}

// posix_spawn's file actions, with sources moved out of the targets' way.
class SpawnFiles {
 public:
  SpawnFiles() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnFiles() {
    posix_spawn_file_actions_destroy(&actions_);
    for (int fd : temporary_) close(fd);
  }
  void Inherit(int fd, int target) {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, kFirstTemporaryFd);
    ROUNDHOUSE_CHECK(copy >= 0) << std::strerror(errno);
    temporary_.push_back(copy);
    posix_spawn_file_actions_adddup2(&actions_, copy, target);
  }
  void NullStdin() {
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
  std::vector<int> temporary_;
};

absl::StatusOr<pid_t> Spawn(const ChildOptions& options, int stdout_fd,
                            int stderr_fd) {
  SpawnFiles files;
  files.NullStdin();
  files.Inherit(stdout_fd, 1);
  files.Inherit(stderr_fd, 2);
  for (size_t i = 0; i < options.descriptors.size(); ++i) {
    files.Inherit(options.descriptors[i], kFirstChildFd + static_cast<int>(i));
  }
  // Nothing else: another thread may have a descriptor open at this moment.
  posix_spawn_file_actions_addclosefrom_np(
      files.get(),
      kFirstChildFd + static_cast<int>(options.descriptors.size()));
  std::vector<std::string> arguments = {options.program};
  arguments.insert(arguments.end(), options.arguments.begin(),
                   options.arguments.end());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  // Own process group: a Ctrl-C at the daemon's terminal is the daemon's.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, options.program.c_str(), files.get(),
                                &attributes, Pointers(arguments).data(),
                                Pointers(options.environment).data());
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return ErrnoStatus(absl::StrCat("starting ", options.program), error);
  }
  return pid;
}

}  // namespace

absl::StatusOr<OutputPipe> MakeOutputPipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus("pipe", errno);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return OutputPipe{fds[0], fds[1]};
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return absl::StrCat("killed by signal ", WTERMSIG(wait_status));
  }
  return absl::StrCat("exited with status ", WEXITSTATUS(wait_status));
}

ChildProcess::ChildProcess(EventLoop& loop, std::function<void(int)> on_exit,
                           std::function<void(const std::string&)> on_stdout)
    : loop_(loop),
      on_exit_(std::move(on_exit)),
      on_stdout_(std::move(on_stdout)) {}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    EventLoop& loop, const ChildOptions& options,
    std::function<void(int)> on_exit,
    std::function<void(const std::string&)> on_stdout) {
  auto child = std::unique_ptr<ChildProcess>(
      new ChildProcess(loop, std::move(on_exit), std::move(on_stdout)));
  ASSIGN_OR_RETURN(const OutputPipe errors, MakeOutputPipe());
  child->stderr_fd_ = errors.read_end;
  OutputPipe output;
  if (options.capture_stdout) {
    ASSIGN_OR_RETURN(output, MakeOutputPipe());
    child->stdout_fd_ = output.read_end;
  }
  const absl::StatusOr<pid_t> pid = Spawn(
      options, options.capture_stdout ? output.write_end : errors.write_end,
      errors.write_end);
  close(errors.write_end);
  if (output.write_end >= 0) close(output.write_end);
  if (!pid.ok()) return pid.status();
  child->pid_ = *pid;
  RETURN_IF_ERROR(child->WatchAll());
  return child;
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Adopt(
    EventLoop& loop, pid_t pid, int stderr_fd,
    std::function<void(int)> on_exit) {
  auto child = std::unique_ptr<ChildProcess>(
      new ChildProcess(loop, std::move(on_exit), nullptr));
  child->pid_ = pid;
  child->stderr_fd_ = stderr_fd;
  RETURN_IF_ERROR(child->WatchAll());
  return child;
}

absl::Status ChildProcess::WatchAll() {
  pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pid_fd_ < 0) return ErrnoStatus("pidfd_open", errno);
  fcntl(pid_fd_, F_SETFD, FD_CLOEXEC);
  loop_.Watch(pid_fd_, EPOLLIN, [this](uint32_t) { OnExit(); });
  loop_.Watch(stderr_fd_, EPOLLIN, [this](uint32_t) { ReadStderr(); });
  if (stdout_fd_ >= 0) {
    loop_.Watch(stdout_fd_, EPOLLIN, [this](uint32_t) { ReadStdout(); });
  }
  return absl::OkStatus();
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !reaped_) {
    kill(pid_, SIGKILL);
    pollfd end{pid_fd_, POLLIN, 0};
    while (poll(&end, 1, kReapMs) < 0 && errno == EINTR) {
    }
    waitpid(pid_, nullptr, WNOHANG);
  }
  for (int fd : {pid_fd_, stderr_fd_, stdout_fd_}) {
    if (fd < 0) continue;
    loop_.Unwatch(fd);
    close(fd);
  }
}

void ChildProcess::Kill(int signal) {
  if (!reaped_) kill(pid_, signal);
}

void ChildProcess::ReadStderr() {
  char buffer[4096];
  ssize_t got;
  while ((got = read(stderr_fd_, buffer, sizeof(buffer))) > 0) {
    [[maybe_unused]] ssize_t n = write(STDERR_FILENO, buffer, got);
    stderr_tail_.append(buffer, got);
    if (stderr_tail_.size() > kStderrTailBytes) {
      stderr_tail_.erase(0, stderr_tail_.size() - kStderrTailBytes);
    }
  }
  if (got == 0) loop_.Unwatch(stderr_fd_);
}

void ChildProcess::ReadStdout() {
  char buffer[4096];
  ssize_t got;
  while ((got = read(stdout_fd_, buffer, sizeof(buffer))) > 0) {
    if (on_stdout_) on_stdout_(std::string(buffer, got));
  }
  if (got == 0) loop_.Unwatch(stdout_fd_);
}

void ChildProcess::OnExit() {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return;
  reaped_ = true;
  loop_.Unwatch(pid_fd_);
  ReadStderr();
  if (stdout_fd_ >= 0) ReadStdout();
  // The owner may destroy this object in the call.
  const auto on_exit = std::move(on_exit_);
  on_exit(status);
}

}  // namespace roundhouse
