// What a worker says to its daemon, from any of its threads; and the heartbeat
// that says it lives.
//
//   Outbox outbox(context.channel);
//   Pulse main_loop;
//   Heartbeats heartbeats(outbox, {&main_loop});
//   outbox.Send(0, wire::Hello{...});
//   while (...) { main_loop.Beat(); ... wait at most Heartbeats::kMaxWait ... }
//
// Every role may use both; a role that does need not lock Channel::Send itself.
#ifndef ROUNDHOUSE_WORKER_OUTBOX_H_
#define ROUNDHOUSE_WORKER_OUTBOX_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/wire/channel.h"

namespace roundhouse::worker {

// Sends one message at a time.  Thread-safe; blocks while the daemon's end is
// full.  A message that cannot be sent is logged: the receiving loop finds the
// closed channel and ends the worker.
class Outbox {
 public:
  explicit Outbox(wire::Channel& channel) : channel_(channel) {}
  void Send(uint64_t attempt, wire::Body body);

 private:
  Mutex mutex_;
  wire::Channel& channel_ ABSL_GUARDED_BY(mutex_);  // one datagram at a time
};

// A loop's sign of life.  Thread-safe.
class Pulse {
 public:
  void Beat() { beats_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> beats_{0};
};

// Sends a Heartbeat every `interval` from a thread of its own, but only while
// every pulse has beaten since the last: a stuck loop falls silent.  It says
// what `pinned_bytes`, called by that thread, answers; without it 0.
class Heartbeats {
 public:
  // Loops beat at least this often.
  static constexpr absl::Duration kMaxWait = absl::Milliseconds(250);

  Heartbeats(Outbox& outbox, std::vector<const Pulse*> pulses,
             std::function<uint64_t()> pinned_bytes = nullptr,
             absl::Duration interval = absl::Seconds(1));
  ~Heartbeats();
  Heartbeats(const Heartbeats&) = delete;
  Heartbeats& operator=(const Heartbeats&) = delete;

 private:
  void Run();
  bool AllBeat();

  Outbox& outbox_;
  const std::vector<const Pulse*> pulses_;
  const std::function<uint64_t()> pinned_bytes_;
  const absl::Duration interval_;
  std::vector<uint64_t> seen_;  // by the thread only
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_OUTBOX_H_
