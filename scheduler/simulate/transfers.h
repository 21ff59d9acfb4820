// The transfers of a simulation: per device a link in each direction, and the
// host worker's; their queues, and what they moved when.
//
// On a channel one transfer runs at a time, the lowest rank first, of equal
// ranks the first that came: activations in the order of their laps, then bulk
// ones.  On a link a bulk transfer gives way to one of lower rank at its next
// chunk and goes on afterwards; the host worker ends a reduction or an update
// before it begins the next operation.  Rates are those of transfer_rates.h.
//
// Thread-compatible; deterministic.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFERS_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFERS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/plan/machine.h"
#include "scheduler/simulate/part_run.h"
#include "scheduler/simulate/schedule.h"
#include "scheduler/simulate/transfer_rates.h"

namespace roundhouse {

// The rank of transfers that give way.
inline constexpr int64_t kBulkRank = int64_t{1} << 40;

struct Transfer {
  WorkKind kind = WorkKind::kWeights;
  // What an activation crosses; for others only its layer counts, and the
  // slot's direction.
  Boundary boundary{0, PassDirection::kForward, kNoMicroBatch};
  int64_t bytes = 0;
  PartRun* run = nullptr;  // null: host work
  // For an activation that goes up: the part's lap that needs it.
  int lap = 0;
  // For an activation that goes up: its lap's place among all laps of the
  // device.
  int64_t rank = 0;
  // False: more of these weights follows.
  bool last = true;
  int job = 0;
  int round = 0;  // over all steps of the job
  int step = 0;
  int first_micro_batch = 0;  // of the step, over all steps
};

class Transfers {
 public:
  struct Options {
    int64_t chunk_bytes = 0;
    Intervals intervals = Intervals::kByRate;
    bool priorities = true;  // false: everything as it comes
    double update_rate = 1;  // bytes per nanosecond
  };

  // Intervals are appended to `schedule`, which must outlive it.
  Transfers(const Machine& machine, const Options& options, Schedule& schedule);

  static int Up(int device) { return 2 * device; }
  static int Down(int device) { return 2 * device + 1; }
  int Host() const { return static_cast<int>(channels_.size()) - 1; }

  void Push(int channel, const Transfer& transfer);
  // What is to be moved on the channel until the part has this layer's weights;
  // nothing where they are not queued.
  std::optional<int64_t> BytesUntilWeights(int channel, const PartRun& run,
                                           int layer) const;
  // Nothing more of the part is moved.
  void Cancel(const PartRun& run);

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
  // Valid until the next call.
  const std::vector<Ended>& TakeEnded();

 private:
  struct Queued {
    Transfer transfer;
    int64_t moved = 0;  // before it gave way
  };
  struct Channel {
    Resource resource;          // of a link
    std::vector<Queued> queue;  // by rank, the next one last
    std::optional<Queued> current;
    bool changed = false;  // since Start
    bool gives_way = false;
    int64_t piece_start_ns = 0;
    int64_t piece_begin = 0;  // bytes of the current run before this piece
  };

  enum class AmongEquals { kFirst, kLast };  // of one rank
  void Change(int channel);
  static void Insert(std::vector<Queued>& queue, const Queued& queued,
                     AmongEquals place);
  void StartChannel(int index);
  void EndChannel(int index);
  void EndPiece(int index);
  void Record(int index);

  double HostRate(WorkKind kind) const {
    return kind == WorkKind::kReduce ? reduce_rate_ : update_rate_;
  }

  const Options options_;
  const double reduce_rate_;
  const double update_rate_;
  Schedule& schedule_;
  TransferRates rates_;
  std::vector<Channel> channels_;
  std::vector<int> changed_;  // channels, since Start
  std::vector<Ended> empty_;  // transfers of no bytes
  std::vector<Ended> ended_;  // of TakeEnded
  int64_t now_ns_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_TRANSFERS_H_
