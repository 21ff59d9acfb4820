#include "server/door/call_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace roundhouse {

CallQueue::CallQueue(const CallQueueLimits& limits) : limits_(limits) {
  for (int i = 0; i < limits_.threads; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

CallQueue::~CallQueue() { Stop(); }

void CallQueue::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

absl::Status CallQueue::Run(const Peer& peer, std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    const bool network = !peer.uid.has_value();
    if (stop_ || waiting_ >= limits_.waiting ||
        (network &&
         waiting_network_ >= limits_.waiting - limits_.waiting / kLocalPart)) {
      return absl::UnavailableError("the server is busy; try again");
    }
    std::deque<std::function<void()>>& calls = calls_[peer];
    if (calls.size() >= limits_.waiting_each) {
      return absl::UnavailableError(
          absl::StrCat("you have ", calls.size(),
                       " such calls waiting, the most of a user; try again "
                       "when some are answered"));
    }
    if (calls.empty()) turns_.push_back(peer);
    calls.push_back(std::move(work));
    ++waiting_;
    waiting_network_ += network ? 1 : 0;
  }
  changed_.NotifyOne();
  return absl::OkStatus();
}

std::function<void()> CallQueue::TakeNext() {
  const Peer peer = std::move(turns_.front());
  turns_.pop_front();
  const auto calls = calls_.find(peer);
  std::function<void()> work = std::move(calls->second.front());
  calls->second.pop_front();
  --waiting_;
  waiting_network_ -= peer.uid.has_value() ? 0 : 1;
  if (calls->second.empty()) {
    calls_.erase(calls);
  } else {
    turns_.push_back(peer);
  }
  return work;
}

void CallQueue::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stop_ && waiting_ == 0) changed_.Wait(mutex_);
    if (waiting_ == 0) return;
    const std::function<void()> work = TakeNext();
    mutex_.Unlock();
    work();
    mutex_.Lock();
  }
}

}  // namespace roundhouse
