// Where unary calls are carried out: a few threads that may wait for the disk,
// where gRPC's own must not, and a queue that users share (peer.h).  Whoever
// comes over the network leaves a part of it to this machine's users.
//
// They take turns, so whoever asks for one thing does not wait behind somebody
// else's hundred.  Of one user, calls are begun in the order given.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_DOOR_CALL_QUEUE_H_
#define ROUNDHOUSE_SERVER_DOOR_CALL_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/door/peer.h"

namespace roundhouse {

struct CallQueueLimits {
  int threads = 4;
  size_t waiting = 1024;      // calls in all
  size_t waiting_each = 128;  // of one user
};

// The part of what may wait that is kept for users of this machine.
inline constexpr size_t kLocalPart = 4;

class CallQueue {
 public:
  explicit CallQueue(const CallQueueLimits& limits = {});
  // Stop().
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // `work` is run, for `peer`: a user of this machine or a token's holder.
  // Otherwise it is not: kUnavailable when he has too many calls waiting, or
  // all together have.
  absl::Status Run(const Peer& peer, std::function<void()> work);
  // Runs what waits, then joins.  Further work is refused.
  void Stop();

 private:
  void Loop();
  // REQUIRES: a call waits.
  std::function<void()> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CallQueueLimits limits_;
  Mutex mutex_;
  CondVar changed_;
  // Who has calls that wait, whose turn is first.
  std::deque<Peer> turns_ ABSL_GUARDED_BY(mutex_);
  std::map<Peer, std::deque<std::function<void()>>> calls_
      ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t waiting_network_ ABSL_GUARDED_BY(mutex_) = 0;  // part of waiting_
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOOR_CALL_QUEUE_H_
