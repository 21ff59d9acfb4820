#include "worker/outbox.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace roundhouse::worker {

void Outbox::Send(uint64_t attempt, wire::Body body) {
  const wire::Message message{attempt, std::move(body)};
  absl::Status sent;
  {
    MutexLock lock(mutex_);
    sent = channel_.Send(message);
  }
  if (!sent.ok()) {
    RH_LOG(kWarning) << "an event was not sent: " << sent.ToString();
  }
}

Heartbeats::Heartbeats(Outbox& outbox, std::vector<const Pulse*> pulses,
                       std::function<uint64_t()> pinned_bytes,
                       absl::Duration interval)
    : outbox_(outbox),
      pulses_(std::move(pulses)),
      pinned_bytes_(std::move(pinned_bytes)),
      interval_(interval),
      seen_(pulses_.size(), 0),
      thread_([this] { Run(); }) {}

Heartbeats::~Heartbeats() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

bool Heartbeats::AllBeat() {
  bool all = true;
  for (size_t i = 0; i < pulses_.size(); ++i) {
    const uint64_t beats = pulses_[i]->beats();
    all = all && beats != seen_[i];
    seen_[i] = beats;
  }
  return all;
}

void Heartbeats::Run() {
  MutexLock lock(mutex_);
  while (true) {
    const CondVar::Deadline deadline = CondVar::DeadlineIn(interval_);
    while (!stopping_ && wake_.WaitUntil(mutex_, deadline)) {
    }
    if (stopping_) return;
    mutex_.Unlock();
    if (AllBeat()) {
      outbox_.Send(0, wire::Heartbeat{MonotonicNs(),
                                      pinned_bytes_ ? pinned_bytes_() : 0});
    }
    mutex_.Lock();
  }
}

}  // namespace roundhouse::worker
