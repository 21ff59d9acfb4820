// Control messages between the daemon and its workers: fixed-layout, versioned,
// one datagram each on a Unix SOCK_SEQPACKET.  Tensors never cross it.
//
//   daemon -> device  ConfigureJob ReleaseJob RunSlot RunSample Withdraw
//                     SetTurn Stop JoinPeers LeavePeers PeerSums
//   daemon -> host    ConfigureJob ReleaseJob HostOp Stop
//   daemon -> files   FileOp MergeRows Stop
//   worker -> daemon  Hello JobConfigured SlotStarted MicroBatchDone
//                     BackfillComputed SumsHeld SliceDown SumsDown SlotDone
//                     Withdrawn SampleDone HostOpDone FileOpDone Failed
//                     Heartbeat PeersInvited PeersJoined PeersLeft
//
// Every message carries an attempt: the number the daemon gave this execution
// of a command; it rises with every command to a worker, a replay has a new
// one, and an answer with an attempt the daemon does not wait for is dropped.
//
// Encode gives the datagram, Decode checks all of it (magic, version, counts
// against bytes, enums) and is fuzzed.
#ifndef ROUNDHOUSE_BASE_WIRE_MESSAGES_H_
#define ROUNDHOUSE_BASE_WIRE_MESSAGES_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/wire/commands.h"
#include "base/wire/events.h"

namespace roundhouse::wire {

inline constexpr uint64_t kMaxMessageBytes = 200 * 1000;
inline constexpr uint32_t kMaxTextBytes = 4096;
// At most this many entries in each array of a message.
inline constexpr uint32_t kMaxArray = 4096;

using Body =
    std::variant<ConfigureJob, ReleaseJob, Stop, Withdraw, RunSlot, HostOp,
                 FileOp, Hello, JobConfigured, SlotStarted, MicroBatchDone,
                 SlotDone, Withdrawn, HostOpDone, FileOpDone, Failed, Heartbeat,
                 RunSample, SampleDone, MergeRows, SumsDown, JoinPeers,
                 LeavePeers, PeerSums, PeersInvited, PeersJoined, PeersLeft,
                 SumsHeld, SliceDown, SetTurn, BackfillComputed>;

struct Message {
  uint64_t attempt = 0;
  Body body;
};

// The answer that the command numbered `id` failed. A message longer than
// kMaxTextBytes is cut off. REQUIRES: !why.ok().
Failed FailedWith(uint64_t id, const absl::Status& why);

// RESOURCE_EXHAUSTED when the datagram would exceed kMaxMessageBytes.
absl::StatusOr<std::string> Encode(const Message& message);

// INVALID_ARGUMENT naming what is wrong and where.
absl::StatusOr<Message> Decode(absl::string_view datagram);

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_MESSAGES_H_
