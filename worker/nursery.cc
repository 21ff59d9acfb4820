#include "worker/nursery.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire/spawn.h"

namespace roundhouse::worker {
namespace {

// Between two tries to fork when processes or memory have run out.
constexpr useconds_t kForkRetryUs = 200'000;

absl::Status ErrnoStatus(const char* call) {
  return absl::InternalError(
      absl::StrCat("nursery: ", call, ": ", std::strerror(errno)));
}

void CloseAll(const std::vector<int>& descriptors) {
  for (const int fd : descriptors) close(fd);
}

// Makes `descriptors` 1, 2, 3 ... and closes the rest but 0.
absl::Status TakeDescriptors(const std::vector<int>& descriptors) {
  std::vector<int> apart;  // where no target lies
  const int first_free = 1 + static_cast<int>(descriptors.size());
  for (const int fd : descriptors) {
    apart.push_back(fcntl(fd, F_DUPFD_CLOEXEC, first_free));
    if (apart.back() < 0) return ErrnoStatus("fcntl");
  }
  int target = 1;
  for (const int fd : apart) {
    if (dup2(fd, target++) < 0) return ErrnoStatus("dup2");
  }
  closefrom(target);
  return absl::OkStatus();
}

// The kernel kills a process with the parent that it has when it asks for that:
// so this waits for the one that stays.
void AwaitAdoption(pid_t first_parent) {
  while (getppid() == first_parent) usleep(50);
}

// In the process between the nursery and the new one.  Its end makes the new
// one the daemon's child.
[[noreturn]] void Report(int pipe_end, pid_t pid) {
  const bool told = write(pipe_end, &pid, sizeof(pid)) == sizeof(pid);
  _exit(pid > 0 && told ? 0 : 1);
}

// What passes without anything being wrong with this process.
bool IsShortage(int error) {
  return error == EAGAIN || error == ENOMEM || error == EMFILE ||
         error == ENFILE;
}

// Tries until there is room for a process; the daemon waits only so long.
pid_t ForkPatiently() {
  while (true) {
    const pid_t pid = fork();
    if (pid >= 0 || !IsShortage(errno)) return pid;
    usleep(kForkRetryUs);
  }
}

// True in the new process; in the nursery false, with the process's id.
absl::StatusOr<bool> ForkTwice(pid_t& pid) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe");
  const pid_t between = ForkPatiently();
  if (between == 0) {
    const pid_t self = getpid();
    const pid_t made = ForkPatiently();
    if (made != 0) Report(ends[1], made);
    AwaitAdoption(self);
    return true;
  }
  close(ends[1]);
  int status = 0;
  while (between > 0 && waitpid(between, &status, 0) < 0 && errno == EINTR) {
  }
  const bool told = read(ends[0], &pid, sizeof(pid)) == sizeof(pid);
  close(ends[0]);
  if (between < 0 || status != 0 || !told) return ErrnoStatus("fork");
  return false;
}

}  // namespace

absl::StatusOr<std::optional<std::vector<std::string>>> RunNursery(int fd) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return ErrnoStatus("prctl");
  while (true) {
    absl::StatusOr<wire::SpawnRequest> request = wire::ReceiveSpawn(fd);
    if (absl::IsUnavailable(request.status())) return std::nullopt;
    if (!request.ok()) return request.status();
    pid_t pid = 0;
    ASSIGN_OR_RETURN(const bool is_new, ForkTwice(pid));
    if (is_new) {
      RETURN_IF_ERROR(TakeDescriptors(request->descriptors));
      setpgid(0, 0);
      return std::move(request->arguments);
    }
    CloseAll(request->descriptors);
    const absl::Status told = wire::SendSpawned(fd, pid);
    if (absl::IsUnavailable(told)) return std::nullopt;
    RETURN_IF_ERROR(told);
  }
}

void ShowArguments(int argc, char** argv,
                   const std::vector<std::string>& arguments) {
  if (argc < 2) return;
  // The kernel lays them out one after the other.
  char* const begin = argv[1];
  char* const last = argv[argc - 1];
  const auto room = static_cast<size_t>(last + std::strlen(last) - begin);
  std::string text;
  for (const std::string& argument : arguments) {
    text += argument;
    text.push_back('\0');
  }
  text.resize(room, '\0');
  std::memcpy(begin, text.data(), room);
}

}  // namespace roundhouse::worker
