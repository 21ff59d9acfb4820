// The transfers of a simulation: per device a link in each direction, and the
// host threads that reduce; their queues, and what they moved when.
//
// On a channel one transfer runs at a time; urgent ones first, those in the
// order of their turns, bulk ones as they came.  A bulk transfer gives way to
// an urgent one at its next chunk and goes on afterwards.  Rates are those of
// transfer_rates.h.
//
// Thread-compatible; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFERS_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFERS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "scheduler/simulate/machine.h"
#include "scheduler/simulate/part_run.h"
#include "scheduler/simulate/schedule.h"
#include "scheduler/simulate/transfer_rates.h"

namespace roundhouse {

struct Transfer {
  WorkKind kind = WorkKind::kWeights;
  // Of an activation; else its layer alone counts, and the slot's direction.
  Boundary boundary{0, PassDirection::kForward, kNoMicroBatch};
  int64_t bytes = 0;
  PartRun* run = nullptr;  // null: host work
  // Of an activation that goes up: the part's turn that needs it, and that
  // turn's place among all of the device.
  int turn = 0;
  int64_t order = 0;
};

class Transfers {
 public:
  // Intervals are appended to `schedule`, which must outlive it.
  Transfers(const Machine& machine, int64_t chunk_bytes, bool split_at_rates,
            Schedule& schedule);

  static int Up(int device) { return 2 * device; }
  static int Down(int device) { return 2 * device + 1; }
  int reduce() const { return static_cast<int>(channels_.size()) - 1; }

  // Activations are urgent, everything else is bulk.
  void Push(int channel, const Transfer& transfer);

  // Starts what can start; to be called once all pushes of a moment are made.
  void Start();
  // When a transfer ends next.  REQUIRES: Start was called.
  int64_t NextEndNs() const;
  void AdvanceTo(int64_t now_ns);

  struct Ended {
    int channel = 0;
    Transfer transfer;
  };
  // Transfers that are complete now, in the order of channels.
  std::vector<Ended> TakeEnded();

 private:
  struct Queued {
    Transfer transfer;
    int64_t moved = 0;  // before it gave way
  };
  struct Channel {
    Resource resource;
    std::deque<Queued> urgent;
    std::deque<Queued> bulk;
    std::optional<Queued> current;
    bool changed = false;  // since Start
    bool gives_way = false;
    int64_t piece_start_ns = 0;
    int64_t piece_begin = 0;  // bytes of the current run before this piece
  };

  void StartChannel(int index);
  void EndChannel(int index, std::vector<Ended>& ended);
  void EndPiece(int index);

  const int64_t chunk_bytes_;
  const bool split_at_rates_;
  Schedule& schedule_;
  TransferRates rates_;
  std::vector<Channel> channels_;
  std::vector<Ended> empty_;  // transfers of no bytes
  int64_t now_ns_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFERS_H_
