// Everything a device worker knows of one dispatched slot.
//
//   kQueued --compute thread takes it--> kComputing --last layer--> kComputed
//
// With SumPlace::kDevice a unit's sums stay in device memory when they are
// complete, until the daemon says whether they go down or are exchanged with
// those of the slot's other parts (held_sums.h, peer_exchange.h).
//
// Before its last contributions SumsDown says which units have theirs already.
// A slot ends in exactly one event: SlotDone once it is computed, every output
// is settled and every contribution is in the arena; Withdrawn or Failed once
// it is given up, its computation has stopped and no copy of it is in flight.
//
// Who may touch what is said by type:
//   Slot           what all threads hold: what never changes, and atomics
//   ComputeRecord  the compute thread's own, until it hands it to the board
//   HeldSum        of whoever took it from the board, until it is returned
//   SlotState      all the rest; only under the SlotBoard's mutex, which alone
//                  makes one of a Slot (SlotBoard::StateOf)
#ifndef ROUNDHOUSE_WORKER_BOARD_SLOT_STATE_H_
#define ROUNDHOUSE_WORKER_BOARD_SLOT_STATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/turns.h"
#include "base/wire/messages.h"
#include "worker/board/job_tables.h"
#include "worker/board/slot_plan.h"
#include "worker/device/device.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

// Thread-safe.
struct Slot {
  Slot(uint64_t attempt, int64_t received_ns, wire::RunSlot command,
       std::shared_ptr<const JobTables> tables, SlotPlan plan);

  const uint64_t attempt;
  const int64_t received_ns;
  const wire::RunSlot command;
  const std::shared_ptr<const JobTables> tables;
  const SlotPlan plan;

  // It was sent for a backfill job.
  bool backfill() const { return IsBackfillTurn(command.turn); }

  // Withdrawn or failed: copies not yet made stay unmade.
  std::atomic<bool> abandoned{false};
  CopyStats stats;  // by the copy queues
};

// What the compute thread measured and computed.  Nanoseconds.
struct ComputeRecord {
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  int64_t waited_ns = 0;
  std::vector<wire::MicroBatchResult> results;
  std::vector<wire::LayerTime> layers;
};

// Where bytes are that go to the device.
enum class Arrival { kAbsent, kCopying, kThere };

// When a word that the feeder waited for was reached.
struct Publication {
  bool awaited = false;
  int64_t reached_ns = 0;  // 0: it was not waited for, or not reached yet
};

struct Upload {
  Arrival arrival = Arrival::kAbsent;
  DeviceBuffer* buffer = nullptr;  // null while absent
  Publication published;           // of the bytes in the arena
  bool refused = false;            // there was no memory for its buffer
  int64_t granted_ns = 0;          // it had its buffer
  int64_t there_ns = 0;
};

struct MicroBatchUploads {
  Upload input;
  Upload gradient;
};

// kSettled: its word is raised, was already, or it has none.
enum class OutputState { kComing, kCopied, kSettled };

enum class ComputePhase { kQueued, kComputing, kComputed };

// Equal device buffers of one slot, made when first needed and kept until the
// slot lets them go.
struct BufferPool {
  BufferNeed need;
  const char* what = "";
  std::vector<std::unique_ptr<DeviceBuffer>> all;
  std::vector<DeviceBuffer*> free;
};

// Names a pool of a slot.  `unit` is a position in RunSlot::units.
struct PoolName {
  enum class Kind { kOutputs, kSums, kRounded };
  Kind kind = Kind::kOutputs;
  size_t unit = 0;

  // Where a sum of the unit is that goes down or is held.
  static PoolName Down(const Slot& slot, size_t unit) {
    return {
        slot.plan.units[unit].rounded.count > 0 ? Kind::kRounded : Kind::kSums,
        unit};
  }
};

// A complete sum that stays on the device.
struct HeldSum {
  uint32_t contribution = 0;
  DeviceBuffer* buffer = nullptr;
  std::unique_ptr<Event> complete;  // null once it was waited for
};

// A unit's sums that stay on the device.
struct HeldUnit {
  // kComing until all are there; kSliced: the slice that they were exchanged
  // for is where the first one would go; kLeaving: they go down, or went.
  enum class State { kComing, kHeld, kExchanging, kSliced, kLeaving };
  State state = State::kComing;
  int64_t since_ns = 0;
  // In the order of their groups; elsewhere while kExchanging or kLeaving.
  std::vector<HeldSum> sums;
};

struct SlotState : Slot {
  SlotState(uint64_t attempt, int64_t received_ns, wire::RunSlot command,
            std::shared_ptr<const JobTables> tables, SlotPlan plan);

  ComputePhase phase = ComputePhase::kQueued;
  uint64_t turn = 0;   // RunSlot's, or that of a later wire::SetTurn
  bool whole = false;  // computed to its end, not given up on the way
  bool withdrawn = false;
  bool behind_sample = false;  // came after a sample was due that still waits
  bool published = false;      // every word that it waits for was reached
  bool fills_bubble = false;   // taken while the oldest one lacked its inputs
  Publication gather_begun;    // RunSlot::gather_begun
  absl::Status failure;
  int copies_in_flight = 0;  // queued or under way, or it must stay
  uint64_t held_bytes = 0;   // of device memory
  // When the device refused what the count allows: first, of refusals that
  // follow each other while nobody else runs, and last.
  int64_t refused_since_ns = 0;
  int64_t refused_last_ns = 0;

  std::vector<Upload> weights;  // by unit
  std::vector<std::unique_ptr<DeviceBuffer>> weight_buffers;
  std::vector<MicroBatchUploads> uploads;  // by micro-batch
  size_t next_input = 0;                   // micro-batches
  size_t next_gradient = 0;
  BufferPool inputs;
  BufferPool gradients;
  BufferPool output_buffers;
  std::vector<BufferPool> sums;     // by unit
  std::vector<BufferPool> rounded;  // likewise
  std::vector<HeldUnit> held;       // likewise

  std::vector<OutputState> outputs;
  size_t contributions_left = 0;    // not yet in the arena
  std::vector<size_t> sums_left;    // of them, by unit
  std::vector<uint32_t> sums_down;  // units that have none left, not told yet

  ComputeRecord computed;  // once it is kComputed

  // A library may have memory for it while others compute: it is, or may any
  // time be, in the middle of a backfill slot's micro-batch.
  bool HoldsWorkingBytes() const {
    return backfill() && held_bytes > 0 && phase != ComputePhase::kComputed;
  }
  // On the device: what the first micro-batch needs to begin.
  bool FirstInputThere() const;
  bool FirstWeightsThere() const;
  BufferPool& Pool(const PoolName& name);
  void Abandon() { abandoned.store(true); }
  void Withdraw();
  // One of units[unit]'s contributions is in the arena.
  void NoteSum(size_t unit);
  void Fail(absl::Status why);
  // The same, unless it is given up already.
  void FailUnlessAbandoned(absl::Status why);
  // The computation is over: OK, or why it is not whole.
  void EndCompute(absl::Status status, ComputeRecord record);
  // All that it sends is in the arena.
  bool Down() const;
  bool Finished() const;
  // Given up, and nobody uses its memory any more.
  bool CanBeDropped() const;
  // What it may still come to hold, or holds.
  uint64_t planned_bytes() const;
  // What of that others have to leave: all, but a backfill slot's only from its
  // first memory on.
  uint64_t claimed_bytes() const {
    return backfill() && held_bytes == 0 ? 0 : planned_bytes();
  }
  // The micro-batch is over: its input and gradient buffers are free.
  void ReleaseUploads(size_t micro_batch);
  // REQUIRES: no copy of them in flight, computed: the inputs and weights go,
  // and sums of which rounded copies go down.
  void ReleaseInputs();
  // REQUIRES: no copy in flight, computed: everything goes.
  void ReleaseAll();
  wire::SlotDone Done(int64_t now_ns, uint64_t memory_peak_bytes) const;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_SLOT_STATE_H_
