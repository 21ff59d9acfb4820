#include "server/loop/event_loop.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {
namespace {

constexpr uint64_t kEventFdId = 0;
constexpr int kMaxEvents = 64;

// Tells a test's guard (tests/fakes/loop_guard.cc), where there is one, that
// this thread runs a loop from now on, or does not any more.
enum class LoopState { kRuns, kEnded };
void TellGuard(LoopState state) {
  using Tell = void (*)(bool);
  static const Tell tell =
      reinterpret_cast<Tell>(dlsym(RTLD_DEFAULT, "roundhouse_set_runs_loop"));
  if (tell != nullptr) tell(state == LoopState::kRuns);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(
    const Clock& clock) {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  const int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kEventFdId;
  if (epoll_fd < 0 || event_fd < 0 ||
      epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &event) != 0) {
    return absl::InternalError(
        absl::StrCat("event loop: ", std::strerror(errno)));
  }
  return std::unique_ptr<EventLoop>(new EventLoop(epoll_fd, event_fd, clock));
}

EventLoop::~EventLoop() {
  close(event_fd_);
  close(epoll_fd_);
}

void EventLoop::Watch(int fd, uint32_t events,
                      std::function<void(uint32_t)> ready) {
  const uint64_t id = next_id_++;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = id;
  ROUNDHOUSE_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0)
      << "watching descriptor " << fd << ": " << std::strerror(errno);
  watched_[fd] = {
      id, std::make_shared<std::function<void(uint32_t)>>(std::move(ready))};
  fd_of_[id] = fd;
}

void EventLoop::SetEvents(int fd, uint32_t events) {
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = found->second.id;
  ROUNDHOUSE_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) == 0);
}

void EventLoop::Unwatch(int fd) {
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  fd_of_.erase(found->second.id);
  watched_.erase(found);
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::After(absl::Duration delay,
                                    std::function<void()> closure) {
  const TimerId id = next_id_++;
  const int64_t due = clock_.MonotonicNs() +
                      std::max<int64_t>(0, absl::ToInt64Nanoseconds(delay));
  timers_.emplace(std::make_pair(due, id), std::move(closure));
  timer_due_ns_[id] = due;
  return id;
}

void EventLoop::CancelTimer(TimerId id) {
  const auto found = timer_due_ns_.find(id);
  if (found == timer_due_ns_.end()) return;
  timers_.erase({found->second, id});
  timer_due_ns_.erase(found);
}

absl::Status EventLoop::Post(std::function<void()> closure) {
  {
    MutexLock lock(mutex_);
    if (closed_) return absl::UnavailableError("the daemon is stopping");
    if (posted_.size() >= kMaxPostedClosures) {
      return absl::ResourceExhaustedError("the daemon has too much to do");
    }
    posted_.push_back(std::move(closure));
  }
  Wake();
  return absl::OkStatus();
}

void EventLoop::PostAnswer(std::function<void()> closure) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    posted_.push_back(std::move(closure));
  }
  Wake();
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  // The counter cannot overflow, and a pending wake-up is as good as a new one.
  [[maybe_unused]] ssize_t n = write(event_fd_, &one, sizeof(one));
}

// One turn.
bool EventLoop::RunReady(int epoll_timeout_ms) {
  epoll_event events[kMaxEvents];
  const int count = epoll_wait(epoll_fd_, events, kMaxEvents, epoll_timeout_ms);
  ROUNDHOUSE_CHECK(count >= 0 || errno == EINTR) << std::strerror(errno);
  const int64_t begun_ns = clock_.MonotonicNs();
  for (int i = 0; i < count; ++i) {
    // epoll_event is packed: nothing may refer to its fields.
    const uint64_t id = events[i].data.u64;
    if (id == kEventFdId) {
      uint64_t wakes;
      [[maybe_unused]] ssize_t n = read(event_fd_, &wakes, sizeof(wakes));
      continue;
    }
    const auto fd = fd_of_.find(id);
    if (fd == fd_of_.end()) continue;  // unwatched by an earlier callback
    const auto ready = watched_.at(fd->second).ready;
    (*ready)(events[i].events);
  }
  bool found = count > 0;
  found |= RunTimers();
  found |= RunPosted();
  if (!idle_.empty() && (count == 0 || clock_.MonotonicNs() >= idle_due_ns_)) {
    found = true;
    RunIdle();
  }
  if (turn_ended_ != nullptr) {
    turn_ended_(absl::Nanoseconds(clock_.MonotonicNs() - begun_ns));
  }
  return found;
}

bool EventLoop::RunTurn(absl::Duration most) {
  return RunReady(
      idle_.empty() ? static_cast<int>(absl::ToInt64Milliseconds(most)) : 0);
}

std::optional<int64_t> EventLoop::next_timer_ns() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first.first;
}

void EventLoop::Run() {
  TellGuard(LoopState::kRuns);
  while (!quitting_) RunReady(idle_.empty() ? TimeoutMs() : 0);
  TellGuard(LoopState::kEnded);
  Finish();
}

void EventLoop::Finish() {
  StopBeside();
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  RunPosted();
  RunIdle();
}

bool EventLoop::RunBeside(std::function<void()> work) {
  return beside_.TryRun(std::move(work));
}

void EventLoop::WhenIdle(std::function<void()> closure) {
  if (idle_.empty()) {
    idle_due_ns_ =
        clock_.MonotonicNs() + absl::ToInt64Nanoseconds(kMostIdleDelay);
  }
  idle_.push_back(std::move(closure));
}

void EventLoop::RunIdle() {
  for (auto& closure : std::exchange(idle_, {})) closure();
}

bool EventLoop::RunPosted() {
  std::deque<std::function<void()>> posted;
  {
    MutexLock lock(mutex_);
    if (posted_.empty()) return false;
    posted.swap(posted_);
  }
  for (auto& closure : posted) closure();
  return true;
}

bool EventLoop::RunTimers() {
  const int64_t now = clock_.MonotonicNs();
  bool found = false;
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto closure = std::move(timers_.begin()->second);
    timer_due_ns_.erase(timers_.begin()->first.second);
    timers_.erase(timers_.begin());
    closure();
    found = true;
  }
  return found;
}

int EventLoop::TimeoutMs() const {
  if (timers_.empty()) return -1;
  const int64_t left = timers_.begin()->first.first - clock_.MonotonicNs();
  return static_cast<int>(
      std::clamp<int64_t>((left + 999999) / 1000000, 0, 60000));
}

}  // namespace roundhouse
