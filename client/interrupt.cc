#include "client/interrupt.h"

#include <fcntl.h>
#include <grpcpp/client_context.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/log.h"

namespace roundhouse::client {
namespace {

constexpr char kStop = 's';
constexpr char kSignal = 'i';

// A signal handler reaches nothing but a global.
std::atomic<int> signal_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int) {
  const int saved_errno = errno;
  const ssize_t written = write(signal_fd.load(), &kSignal, 1);
  (void)written;
  errno = saved_errno;
}

}  // namespace

Interrupt::Interrupt() {
  int fds[2];
  ROUNDHOUSE_CHECK(pipe2(fds, O_CLOEXEC) == 0) << "pipe2: errno " << errno;
  read_fd_ = fds[0];
  write_fd_ = fds[1];
  reader_ = std::thread([this] { ReadPipe(); });
}

Interrupt::~Interrupt() {
  if (handles_signals_) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
  }
  ROUNDHOUSE_CHECK(write(write_fd_, &kStop, 1) == 1);
  reader_.join();
  close(read_fd_);
  close(write_fd_);
}

void Interrupt::HandleSignals() {
  ROUNDHOUSE_CHECK(signal_fd.exchange(write_fd_) == -1);
  handles_signals_ = true;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  ROUNDHOUSE_CHECK(sigaction(SIGINT, &action, nullptr) == 0);
  ROUNDHOUSE_CHECK(sigaction(SIGTERM, &action, nullptr) == 0);
}

void Interrupt::ReadPipe() {
  for (;;) {
    char byte = 0;
    const ssize_t count = read(read_fd_, &byte, 1);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    ROUNDHOUSE_CHECK(count == 1) << "pipe: errno " << errno;
    if (byte == kStop) {
      return;
    }
    Request();
  }
}

void Interrupt::Request() {
  MutexLock lock(mutex_);
  requested_ = true;
  for (grpc::ClientContext* context : contexts_) {
    context->TryCancel();
  }
  changed_.NotifyAll();
}

bool Interrupt::requested() const {
  MutexLock lock(mutex_);
  return requested_;
}

bool Interrupt::Wait(absl::Duration duration) {
  MutexLock lock(mutex_);
  const CondVar::Deadline deadline = CondVar::DeadlineIn(duration);
  while (!requested_ && changed_.WaitUntil(mutex_, deadline)) {
  }
  return !requested_;
}

Interrupt::Scope::Scope(Interrupt* interrupt, grpc::ClientContext* context)
    : interrupt_(interrupt), context_(context) {
  MutexLock lock(interrupt_->mutex_);
  interrupt_->contexts_.insert(context_);
  if (interrupt_->requested_) {
    context_->TryCancel();
  }
}

Interrupt::Scope::~Scope() {
  MutexLock lock(interrupt_->mutex_);
  interrupt_->contexts_.erase(context_);
}

}  // namespace roundhouse::client
