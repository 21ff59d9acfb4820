// Adds up the sums that the parts of a wide slot hold on their devices, between
// these (PeerSums in base/wire/peer_commands.h): each gets a slice of every
// other one's, adds it up the tree of the round's groups in fp32, as the host
// worker would, and sends that down.  So one fp32 sum of the unit crosses the
// links to the host, cut in slices, in place of one from each part; the bits
// are those of the host's reduction of the same sums.
//
// A thread of its own makes the copies and waits for them, one exchange after
// the other in the order of the commands.  It takes no memory while it works,
// so it waits for the other members only.
#ifndef ROUNDHOUSE_WORKER_PEERS_PEER_EXCHANGE_H_
#define ROUNDHOUSE_WORKER_PEERS_PEER_EXCHANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/wire/arena.h"
#include "base/wire/messages.h"
#include "base/wire/peers.h"
#include "worker/board/held_sums.h"
#include "worker/board/slot_board.h"
#include "worker/device/device.h"
#include "worker/device/peers.h"
#include "worker/outbox.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

class PeerExchange {
 public:
  // Takes its scratch memory (wire::kPeerScratchBytes) from the device.  All
  // references outlive it.  FAILED_PRECONDITION: the device reaches no other.
  static absl::StatusOr<std::unique_ptr<PeerExchange>> Create(
      Device& device, SlotBoard& board, HeldSums& held, CopyQueue& downloads,
      const wire::Arena& arena, Outbox& outbox);
  // Ends what is under way.
  ~PeerExchange();
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  // The commands, on the main loop's thread; none blocks.
  void Join(const wire::JoinPeers& command);
  void Leave(const wire::LeavePeers& command);
  // REQUIRES: of verb kExchange.
  void Exchange(wire::PeerSums command);

 private:
  // An exchange with all that is needed for its copies.
  struct Run;
  class Results;

  PeerExchange(Device& device, SlotBoard& board, HeldSums& held,
               CopyQueue& downloads, const wire::Arena& arena, Outbox& outbox)
      : link_(*device.peers()),
        board_(board),
        held_(held),
        downloads_(downloads),
        arena_(arena),
        outbox_(outbox) {}

  void Work();
  void DoJoin(const wire::JoinPeers& command);
  void DoExchange(const wire::PeerSums& command);
  absl::Status Check(const wire::PeerSums& command) const;
  absl::Status FindOwn(Run& run);
  absl::Status MakeSlices(Run& run);
  absl::Status MakeChunk(Run& run, uint64_t begin, std::byte* result);
  absl::Status CopyChunk(Run& run, uint64_t begin);
  const std::byte* OwnSum(const Run& run, size_t sum, uint64_t element) const;
  absl::Status FoldChunk(Run& run, uint64_t begin, uint64_t elements,
                         std::byte* result);
  void SendDown(Run& run, uint64_t begin, uint64_t elements, size_t result);
  // Whoever calls it keeps no group: the end of one may hold up its last owner,
  // which is to be the thread.
  void GiveUpGroup() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is over for this worker; says why.
  void LeaveGroup(const absl::Status& why);

  PeerLink& link_;
  SlotBoard& board_;
  HeldSums& held_;
  CopyQueue& downloads_;
  const wire::Arena& arena_;
  Outbox& outbox_;
  std::unique_ptr<Stream> stream_;         // the thread's
  std::unique_ptr<DeviceBuffer> scratch_;  // likewise
  uint64_t group_number_ = 0;              // likewise; 0: it has no group

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::variant<wire::JoinPeers, wire::PeerSums>> commands_
      ABSL_GUARDED_BY(mutex_);
  // Set and reset by the thread only.
  std::shared_ptr<PeerGroup> group_ ABSL_GUARDED_BY(mutex_);
  // Groups up to this one are over.
  uint64_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::atomic<bool> given_up_{false};  // the Join under way is
  std::thread thread_;                 // last: starts when all else is there
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_PEERS_PEER_EXCHANGE_H_
