#include "server/workers/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr int kReapMs = 1000;
constexpr int kReapStepMs = 10;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) {
    pointers.push_back(const_cast<char*>(s.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// posix_spawn's file actions, with sources moved out of the targets' way.
class SpawnFiles {
 public:
  explicit SpawnFiles(int first_free_fd) : first_free_fd_(first_free_fd) {
    posix_spawn_file_actions_init(&actions_);
  }
  ~SpawnFiles() { posix_spawn_file_actions_destroy(&actions_); }
  absl::Status Inherit(int fd, int target) {
    Descriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, first_free_fd_));
    // A limit that leaves no number at all above the targets is EINVAL.
    if (copy.get() < 0) {
      return ShortageOr("fcntl", errno == EINVAL ? EMFILE : errno);
    }
    posix_spawn_file_actions_adddup2(&actions_, copy.get(), target);
    temporary_.push_back(std::move(copy));
    return absl::OkStatus();
  }
  void NullStdin() {
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  const int first_free_fd_;  // above all targets
  posix_spawn_file_actions_t actions_;
  std::vector<Descriptor> temporary_;
};

absl::StatusOr<pid_t> Spawn(const ChildOptions& options, int stdout_fd,
                            int stderr_fd) {
  const int first_free_fd =
      kFirstChildFd + static_cast<int>(options.descriptors.size());
  SpawnFiles files(first_free_fd);
  files.NullStdin();
  RETURN_IF_ERROR(files.Inherit(stdout_fd, 1));
  RETURN_IF_ERROR(files.Inherit(stderr_fd, 2));
  for (size_t i = 0; i < options.descriptors.size(); ++i) {
    RETURN_IF_ERROR(files.Inherit(options.descriptors[i],
                                  kFirstChildFd + static_cast<int>(i)));
  }
  // Nothing else: another thread may have a descriptor open at this moment.
  posix_spawn_file_actions_addclosefrom_np(files.get(), first_free_fd);
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
    return ShortageOr(absl::StrCat("starting ", options.program), error);
  }
  return pid;
}

// Takes the exit of those of a killed process group that are our children.
void ReapGroup(EventLoop& loop, pid_t group) {
  pid_t reaped = 0;
  while ((reaped = waitpid(-group, nullptr, WNOHANG)) > 0) {
  }
  if (reaped < 0) return;  // there is none left
  loop.After(absl::Milliseconds(kReapStepMs),
             [&loop, group] { ReapGroup(loop, group); });
}

}  // namespace

absl::Status ShortageOr(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(error));
  const bool passes =
      error == EMFILE || error == ENFILE || error == EAGAIN || error == ENOMEM;
  return passes ? absl::UnavailableError(text) : absl::InternalError(text);
}

absl::Status CheckDescriptorsLeft(int count) {
  std::vector<Descriptor> held;
  int error = 0;
  while (static_cast<int>(held.size()) < count && error == 0) {
    Descriptor one(eventfd(0, EFD_CLOEXEC));
    if (one.get() >= 0) {
      held.push_back(std::move(one));
    } else {
      error = errno;
    }
  }
  if (error == 0) return absl::OkStatus();
  return ShortageOr(absl::StrCat("fewer than ", count, " descriptors are left"),
                    error);
}

absl::StatusOr<OutputPipe> MakeOutputPipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ShortageOr("pipe", errno);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return OutputPipe{Descriptor(fds[0]), Descriptor(fds[1])};
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
  ASSIGN_OR_RETURN(OutputPipe errors, MakeOutputPipe());
  child->stderr_ = std::move(errors.read_end);
  OutputPipe output;
  if (options.capture_stdout) {
    ASSIGN_OR_RETURN(output, MakeOutputPipe());
    child->stdout_ = std::move(output.read_end);
  }
  const int stderr_fd = errors.write_end.get();
  ASSIGN_OR_RETURN(
      child->pid_,
      Spawn(options,
            options.capture_stdout ? output.write_end.get() : stderr_fd,
            stderr_fd));
  child->ends_group_ = options.ends_group;
  RETURN_IF_ERROR(child->WatchAll());
  return child;
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Adopt(
    EventLoop& loop, pid_t pid, Descriptor errors,
    std::function<void(int)> on_exit) {
  auto child = std::unique_ptr<ChildProcess>(
      new ChildProcess(loop, std::move(on_exit), nullptr));
  child->pid_ = pid;
  child->stderr_ = std::move(errors);
  RETURN_IF_ERROR(child->WatchAll());
  return child;
}

absl::Status ChildProcess::WatchAll() {
  pid_fd_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (pid_fd_.get() < 0) return ShortageOr("pidfd_open", errno);
  fcntl(pid_fd_.get(), F_SETFD, FD_CLOEXEC);
  loop_.Watch(pid_fd_.get(), EPOLLIN, [this](uint32_t) { OnExit(); });
  loop_.Watch(stderr_.get(), EPOLLIN, [this](uint32_t) { ReadStderr(); });
  if (stdout_.get() >= 0) {
    loop_.Watch(stdout_.get(), EPOLLIN, [this](uint32_t) { ReadStdout(); });
  }
  return absl::OkStatus();
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !reaped_) {
    kill(ends_group_ ? -pid_ : pid_, SIGKILL);
    Reap();
    if (ends_group_) ReapGroup(loop_, pid_);
  }
  for (const Descriptor* one : {&pid_fd_, &stderr_, &stdout_}) {
    loop_.Unwatch(one->get());
  }
}

// Without a pidfd, which there may have been no descriptor for, it looks again
// and again.
void ChildProcess::Reap() {
  pollfd end{pid_fd_.get(), POLLIN, 0};
  const int step_ms = pid_fd_.get() >= 0 ? kReapMs : kReapStepMs;
  for (int waited_ms = 0; waited_ms < kReapMs; waited_ms += step_ms) {
    while (poll(&end, 1, step_ms) < 0 && errno == EINTR) {
    }
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
  }
}

void ChildProcess::Kill(int signal) {
  if (!reaped_) kill(pid_, signal);
}

void ChildProcess::ReadStderr() {
  char buffer[4096];
  ssize_t got;
  while ((got = read(stderr_.get(), buffer, sizeof(buffer))) > 0) {
    [[maybe_unused]] ssize_t n = write(STDERR_FILENO, buffer, got);
    stderr_tail_.append(buffer, got);
    if (stderr_tail_.size() > kStderrTailBytes) {
      stderr_tail_.erase(0, stderr_tail_.size() - kStderrTailBytes);
    }
  }
  if (got == 0) loop_.Unwatch(stderr_.get());
}

void ChildProcess::ReadStdout() {
  char buffer[4096];
  ssize_t got;
  while ((got = read(stdout_.get(), buffer, sizeof(buffer))) > 0) {
    if (on_stdout_) on_stdout_(std::string(buffer, got));
  }
  if (got == 0) loop_.Unwatch(stdout_.get());
}

void ChildProcess::OnExit() {
  int status = 0;
  // Until it is reaped no other group can have its number.
  if (ends_group_) kill(-pid_, SIGKILL);
  if (waitpid(pid_, &status, WNOHANG) != pid_) return;
  reaped_ = true;
  if (ends_group_) ReapGroup(loop_, pid_);
  loop_.Unwatch(pid_fd_.get());
  ReadStderr();
  if (stdout_.get() >= 0) ReadStdout();
  // The owner may destroy this object in the call.
  const auto on_exit = std::move(on_exit_);
  on_exit(status);
}

}  // namespace roundhouse
