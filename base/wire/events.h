// What workers tell the daemon (base/wire/messages.h).  Times are
// CLOCK_MONOTONIC nanoseconds.
#ifndef ROUNDHOUSE_BASE_WIRE_EVENTS_H_
#define ROUNDHOUSE_BASE_WIRE_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/wire/layout.h"
#include "base/wire/peer_commands.h"
#include "base/wire/wait_cause.h"

namespace roundhouse::wire {

struct Hello {
  uint32_t version = kWireVersion;
  uint32_t pid = 0;
  uint64_t device_memory_bytes = 0;
  // The measured rates of the device's link; 0: unknown.
  uint64_t h2d_bytes_per_second = 0;
  uint64_t d2h_bytes_per_second = 0;
};

struct JobConfigured {
  uint64_t job = 0;
};

// A slot's computation begins, or a sample's.
struct SlotStarted {
  uint64_t slot = 0;        // or the sample's number
  int64_t received_ns = 0;  // the command's receipt
  int64_t time_ns = 0;
  bool fills_bubble = false;  // it overtook one that lacked its inputs
  bool backfill = false;      // BackfillComputed says when it computes
  WaitTimes waits = {};       // since the device computed last
};

// A slot of a backfill job was computed, while no other could go on.  Such
// times lie in the waits of the others, and in none of another's computations.
struct BackfillComputed {
  uint64_t slot = 0;
  uint32_t index = 0;  // the micro-batch, as in MicroBatchDone
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  bool fills_bubble = false;  // others had slots there
};

struct MicroBatchDone {
  uint64_t slot = 0;
  uint32_t index = 0;
  bool last = false;  // the slot's computation is over
  int64_t time_ns = 0;
  WaitTimes waits = {};  // since the last one, or SlotStarted
};

enum class Direction : uint32_t { kH2D = 0, kD2H = 1 };
enum class Purpose : uint32_t {
  kWeights = 0,
  kGradients = 1,
  kActivations = 2,
  kOther = 3
};
inline constexpr int kDirections = 2;
inline constexpr int kPurposes = 4;
inline constexpr Direction kEachDirection[kDirections] = {Direction::kH2D,
                                                          Direction::kD2H};
inline constexpr Purpose kEachPurpose[kPurposes] = {
    Purpose::kWeights, Purpose::kGradients, Purpose::kActivations,
    Purpose::kOther};

// Whether a loss is a number.
enum class Finite : uint32_t { kNo = 0, kYes = 1 };

struct MicroBatchResult {
  double loss_sum = 0;
  uint64_t target_tokens = 0;
  Finite finite = Finite::kYes;
  uint32_t pad = 0;
};

struct LayerTime {
  uint32_t layer = 0;
  uint32_t samples = 0;
  int64_t forward_ns = 0;   // mean; of a backward slot: recompute included
  int64_t backward_ns = 0;  // mean; 0 in forward slots
};

// What of a copy had the link without a break: chunks of a bulk copy between
// which nothing else went are one.
struct CopyInterval {
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  uint64_t bytes = 0;
  Direction direction = Direction::kH2D;
  Purpose purpose = Purpose::kWeights;
  uint32_t layer = 0;        // that needs or leaves the bytes
  int32_t micro_batch = -1;  // of the round; -1: of the whole slot
};
// The copies that are recorded for one slot and direction; later ones are only
// counted.
inline constexpr size_t kMaxTracedCopies = 1024;

struct SlotDone {
  uint64_t slot = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;  // the event's own time
  int64_t wait_ns = 0;   // compute had nothing to do: inputs not there
  int64_t h2d_ns = 0;    // link busy
  int64_t compute_ns = 0;
  int64_t d2h_ns = 0;                      // link busy
  int64_t longest_activation_wait_ns = 0;  // behind bulk copies, any queue
  uint64_t bytes[kDirections][kPurposes] = {};
  uint64_t device_memory_peak_bytes = 0;
  uint64_t copies_left_out = 0;           // of `copies`
  std::vector<MicroBatchResult> results;  // fused and evaluate slots
  std::vector<LayerTime> layers;
  std::vector<CopyInterval> copies;  // RunSlot::trace: all, up to the limit
};

// All that the slot, which goes on, contributes to these units is in the arena
// for good: they may be reduced, and no later attempt may write it again.
struct SumsDown {
  uint64_t slot = 0;
  int64_t time_ns = 0;
  std::vector<uint32_t> units;
};

// Made by a group's rank 0, for the others.
struct PeersInvited {
  uint64_t group = 0;
  PeerGroupId id = {};
};

struct PeersJoined {
  uint64_t group = 0;
};

// The worker is no member of the group, or no more: `text` says why.
struct PeersLeft {
  uint64_t group = 0;
  std::string text;
};

// All that the slot contributes to these units was computed, or will be without
// further ado, and is held (RunSlot::sums).
struct SumsHeld {
  uint64_t slot = 0;
  std::vector<uint32_t> units;
};

// The answer to an exchange; the sums are still held.
struct SliceDown {
  uint64_t slot = 0;
  uint64_t group = 0;
  uint32_t unit = 0;
  bool whole = false;  // else nothing in the slice means anything
  int64_t time_ns = 0;
};

struct Withdrawn {
  uint64_t slot = 0;
};

struct SampleDone {
  uint64_t sample = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  uint64_t weight_bytes = 0;  // uploaded
  // By sequence: how many tokens were drawn, and these, one sequence after the
  // other, with the end token where there is one.
  std::vector<uint32_t> counts;
  std::vector<int32_t> tokens;
};

struct HostOpDone {
  uint64_t operation = 0;
  double norm_squared = 0;  // reduce with want_norm: chunks added in order
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
};

struct FileOpDone {
  uint64_t operation = 0;
  uint64_t bytes = 0;
};

// A command that could not be done; the worker goes on.  `code` is an
// absl::StatusCode.
struct Failed {
  uint64_t id = 0;  // slot or operation
  uint32_t code = 0;
  std::string text;
};

struct Heartbeat {
  int64_t time_ns = 0;
  uint64_t pinned_bytes = 0;  // of the arena, by a device's worker
};

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_EVENTS_H_
