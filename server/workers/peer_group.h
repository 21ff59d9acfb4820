// The group in which all devices copy from one another (worker/device/peers.h):
// formed when every device's worker is up, over as soon as one of them is gone
// or another one comes, and formed again when all are there.
//
// Whatever goes wrong with it costs time and nothing else: sums that devices do
// not add up the host worker adds.  A group that does not come about or does
// not answer is given up; after kMaxFailures in a row none is formed any more.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WORKERS_PEER_GROUP_H_
#define ROUNDHOUSE_SERVER_WORKERS_PEER_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/wire/messages.h"
#include "server/loop/event_loop.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

class PeerGroup {
 public:
  static constexpr int kMaxFailures = 3;

  struct Options {
    bool enabled = false;
    // To form; and for an exchange to be answered.
    absl::Duration limit = absl::Minutes(1);
    // Longer than it takes to learn that a member had died: then it was no
    // failure.
    absl::Duration retry_delay = absl::Seconds(35);
  };

  // `loop` and `pool` outlive it.
  PeerGroup(EventLoop& loop, WorkerPool& pool, const Options& options);
  ~PeerGroup();

  // Called when a group that was there is over.
  void OnOver(std::function<void()> over) { over_ = std::move(over); }

  // The pool's events.
  void OnWorkerUp(WorkerId worker);
  void OnWorkerDown(WorkerId worker);
  void OnDeviceLost(DeviceId device);
  void OnMessage(WorkerId worker, const wire::Message& message);

  bool enabled() const { return options_.enabled; }
  // Its number; 0: there is none now.
  uint64_t number() const { return phase_ == Phase::kThere ? number_ : 0; }
  // REQUIRES: there is one, and every device is of it.
  uint32_t RankOf(DeviceId device) const;

  // An order to exchange is sent to a worker of the group.
  void NoteSent();
  // A unit's sums were added up.
  void NoteExchange() { failures_ = 0; }

 private:
  enum class Phase { kNone, kForming, kThere };
  enum class Blame { kWorker, kGroup };

  void FormIfComplete();
  // Also where there is none; a failure of the group's own counts.
  void End(const std::string& why, Blame blame);
  bool IsMember(WorkerId worker) const;
  void CheckLater();
  void Check();

  EventLoop& loop_;
  WorkerPool& pool_;
  const Options options_;
  std::function<void()> over_ = [] {};
  Phase phase_ = Phase::kNone;
  uint64_t number_ = 0;            // of the newest
  std::vector<DeviceId> members_;  // by rank
  std::set<WorkerId> joined_;
  int failures_ = 0;  // in a row
  int64_t awaited_ = 0;
  int64_t heard_ns_ = 0;  // when it began to form, or answered last
  EventLoop::TimerId check_timer_ = 0;
  EventLoop::TimerId retry_timer_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_PEER_GROUP_H_
