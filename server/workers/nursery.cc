#include "server/workers/nursery.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// What the command line of a forked process may be longer than the nursery's.
constexpr size_t kTitleRoom = 512;

}  // namespace

Nursery::~Nursery() {
  loop_.CancelTimer(timer_);
  Disconnect();
}

void Nursery::Disconnect() {
  if (socket_.get() < 0) return;
  loop_.Unwatch(socket_.get());
  socket_ = Descriptor();
}

absl::Status Nursery::Start() {
  if (process_ != nullptr) return absl::OkStatus();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return absl::InternalError(
        absl::StrCat("PR_SET_CHILD_SUBREAPER: ", std::strerror(errno)));
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ShortageOr("socketpair", errno);
  }
  Descriptor own(ends[0]);
  const Descriptor childs(ends[1]);
  ChildOptions child;
  child.program = options_.program;
  child.arguments = {"--role=nursery",
                     absl::StrCat("--channel-fd=", kFirstChildFd),
                     absl::StrCat("--room=", std::string(kTitleRoom, ' '))};
  child.environment = options_.environment;
  child.descriptors = {childs.get()};
  ASSIGN_OR_RETURN(process_,
                   ChildProcess::Start(loop_, child, [this](int wait_status) {
                     OnExit(wait_status);
                   }));
  socket_ = std::move(own);
  loop_.Watch(socket_.get(), EPOLLIN, [this](uint32_t) { ReadAnswers(); });
  return absl::OkStatus();
}

absl::Status Nursery::Spawn(const wire::SpawnRequest& request,
                            Spawned spawned) {
  RETURN_IF_ERROR(Start());
  const absl::Status sent = wire::SendSpawn(socket_.get(), request);
  // If the nursery is gone, OnExit will say why.
  if (!sent.ok() && !absl::IsUnavailable(sent)) return sent;
  pending_.push_back(std::move(spawned));
  if (pending_.size() == 1) RestartTimer();
  return absl::OkStatus();
}

void Nursery::RestartTimer() {
  loop_.CancelTimer(timer_);
  if (pending_.empty()) return;
  timer_ = loop_.After(options_.answer_limit, [this] {
    if (process_ == nullptr) return;
    RH_LOG(kError) << "nursery " << pid() << " has not answered for "
                   << absl::FormatDuration(options_.answer_limit) << ": killed";
    process_->Kill(SIGKILL);
  });
}

void Nursery::ReadAnswers() {
  while (true) {
    const absl::StatusOr<pid_t> pid = wire::TryReceiveSpawned(socket_.get());
    if (absl::IsResourceExhausted(pid.status())) return;
    if (!pid.ok() || pending_.empty()) break;
    const Spawned spawned = std::move(pending_.front());
    pending_.pop_front();
    RestartTimer();
    spawned(*pid);
  }
  // It has closed its end, or speaks unasked: its exit says the rest.
  loop_.SetEvents(socket_.get(), 0);
  process_->Kill(SIGKILL);
}

void Nursery::OnExit(int wait_status) {
  ReadAnswers();
  const std::string why =
      absl::StrCat("nursery ", DescribeExit(wait_status),
                   process_->stderr_tail().empty() ? "" : "; its last words:\n",
                   process_->stderr_tail());
  RH_LOG(kWarning) << why.substr(0, why.find('\n'));
  const auto process = std::move(process_);
  Disconnect();
  loop_.CancelTimer(timer_);
  for (const Spawned& spawned : std::exchange(pending_, {})) {
    spawned(absl::UnavailableError(why));
  }
}

}  // namespace roundhouse
