// What the daemon asks of workers whose devices add up sums between them
// (base/wire/messages.h).
#ifndef ROUNDHOUSE_BASE_WIRE_PEER_COMMANDS_H_
#define ROUNDHOUSE_BASE_WIRE_PEER_COMMANDS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/wire/layout.h"

namespace roundhouse::wire {

// What the members of a group of devices that copy from one another find each
// other by (worker/device/peers.h).
using PeerGroupId = std::array<char, 128>;

// Become member `rank` of `size` of a group, in place of any earlier one.
// Rank 0 makes the id, and says it (PeersInvited).  Answer: PeersJoined, or
// PeersLeft.
struct JoinPeers {
  uint64_t group = 0;  // rises
  uint32_t rank = 0;
  uint32_t size = 0;
  PeerGroupId id = {};  // of other ranks than 0
};

// The group is over: a member is gone.  Exchanges under way end.
struct LeavePeers {
  uint64_t group = 0;
};

enum class PeerVerb : uint32_t {
  kExchange = 1,  // answer: SliceDown
  kDownload =
      2,        // each sum goes to its own buffer; SumsDown as without holding
  kRelease = 3  // every slice is down: the sums are not needed any more
};

// One part of a wide slot, and the slice of the unit that it adds up.
struct PeerMember {
  uint32_t rank = 0;
  uint32_t pad = 0;
  uint64_t first_element = 0;
  uint64_t elements = 0;
};

// A sum that a member holds: one largest subtree of its groups.
struct PeerSum {
  uint32_t member = 0;
  uint32_t group_count = 0;
};

// What is to become of one unit's sums that a slot holds.  In an exchange each
// member gets its slice of all the others' sums, adds them up the tree of the
// round's groups, and copies that, fp32, to `slice`: together the members leave
// the unit's gradient of the round.  All members get theirs, and all that a
// worker gets come in one order that is the same everywhere.  A worker that has
// the sums no more takes part all the same, with bytes that mean nothing, and
// says so (SliceDown::whole).
struct PeerSums {
  uint64_t target_attempt = 0;
  uint64_t slot = 0;
  uint64_t group = 0;
  uint32_t unit = 0;
  PeerVerb verb = PeerVerb::kRelease;
  // The next fields are for exchanges only.
  DType dtype = DType::kF32;  // of the sums that are held
  uint32_t self = 0;          // of members
  uint64_t chunk_elements = 0;
  BufferRef slice;
  std::vector<PeerMember> members;
  std::vector<PeerSum> sums;  // in the order of their groups
};

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_PEER_COMMANDS_H_
