// Copies between the memories of devices that belong to different processes: a
// *group* of such devices, which can reach each other.  device/cuda makes them
// with NCCL, device/cpu over sockets.
//
// A member may die at any time.  The others then get UNAVAILABLE, at the latest
// when somebody who knows calls Abort, and none of their work is left running.
#ifndef ROUNDHOUSE_WORKER_DEVICE_PEERS_H_
#define ROUNDHOUSE_WORKER_DEVICE_PEERS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace roundhouse::worker {

class Stream;

inline constexpr int kMaxPeers = 64;
// Who has not joined by then will not.
inline constexpr absl::Duration kMaxPeerJoin = absl::Minutes(2);

// What members find each other by: one of them makes it, and all must have it.
// As long as NCCL's.
using PeerGroupId = std::array<char, 128>;

// Between this member and another one; either direction may have no bytes.
// Device memory.
struct PeerCopy {
  int rank = 0;  // the other one's
  const std::byte* send = nullptr;
  uint64_t send_bytes = 0;
  std::byte* receive = nullptr;
  uint64_t receive_bytes = 0;
};

// Thread-compatible but for Abort.
class PeerGroup {
 public:
  // Aborts what is under way, also with members that are not as far yet: their
  // calls may end UNAVAILABLE.
  virtual ~PeerGroup() = default;

  // Queues the copies on `stream`, after what is there.  May block until the
  // other members do the same.  REQUIRES: each of the ranks makes the call with
  // the same bytes the other way round; any two members make the calls that
  // concern both in one order; each rank is there once at most; `stream` is
  // that of the group's other calls.  Errors as Finish's.
  virtual absl::Status Exchange(Stream& stream,
                                const std::vector<PeerCopy>& copies) = 0;

  // Blocks until all that was queued on `stream` is done.  UNAVAILABLE: it is,
  // but the group is over, and what was received since the last call is worth
  // nothing.  ABORTED: this device is lost.
  virtual absl::Status Finish(Stream& stream) = 0;

  // Ends the group, and does not wait for that: every call under way and every
  // later one is UNAVAILABLE; no work of the group is left on the stream once
  // Finish has said so.  Thread-safe.
  virtual void Abort() = 0;
};

// A device's door to the others.  Thread-compatible.
class PeerLink {
 public:
  virtual ~PeerLink() = default;
  virtual absl::StatusOr<PeerGroupId> NewGroupId() = 0;
  // Blocks until all `size` members have called it with the same id, or
  // `given_up` is true.  UNAVAILABLE: it was given up, kMaxPeerJoin has passed,
  // or a member cannot be reached.  ABORTED: this device is lost.  REQUIRES:
  // the process that made the id joins too, and still runs; 0 <= rank < size <=
  // kMaxPeers, each rank once.  The group must be gone before the device.
  virtual absl::StatusOr<std::unique_ptr<PeerGroup>> Join(
      const PeerGroupId& id, int rank, int size,
      const std::atomic<bool>& given_up) = 0;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_PEERS_H_
