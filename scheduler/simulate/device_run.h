// A device of a simulation: what it computes, and what waits there.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_DEVICE_RUN_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_DEVICE_RUN_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "scheduler/simulate/part_run.h"
#include "scheduler/simulate/transfer_rates.h"
#include "scheduler/simulate/transfers.h"

namespace roundhouse {

// Laps beyond those computed whose inputs may be on the device: the one that
// runs, and the next.
inline constexpr int kLapWindow = 2;
// Sets of gradient sums of a job on a device: added to, and going down.
inline constexpr size_t kSumSets = 2;

struct SentPart {
  PartRun* run = nullptr;
  uint64_t turn = 0;
  bool backfill = false;
  int64_t order = 0;  // PartFeed::Sent's
  // The place of its first lap: over the job's parts on the device, and over
  // all parts.
  int64_t first_lap = 0;
  int64_t first_rank = 0;
};

// An activation that a part needs.
struct Upload {
  PartRun* run = nullptr;
  int lap = 0;       // of the part
  int64_t rank = 0;  // of the lap, over all parts on the device
  Boundary boundary;
};

// A backward part whose gradients are not all down.
struct Sums {
  PartRun* run = nullptr;
  int layers_left = 0;
};

// What a device has of one job.  Parts of one job run in the order in which
// they were sent.
struct DeviceLane {
  std::deque<SentPart> parts;  // not computed
  // Uploads of the laps that may upload, not yet queued; in order.
  absl::InlinedVector<Upload, 2 * kLapWindow> uploads;
  std::deque<Transfer> held_gradients;  // until host work is done, in order
  std::deque<Sums> sums;
  int64_t laps_sent = 0;
  int64_t laps_done = 0;
  int64_t laps_admitted = 0;  // to `uploads`

  void AllowSums() {
    for (size_t i = 0; i < std::min(kSumSets, sums.size()); ++i) {
      sums[i].run->AllowSums();
    }
  }
  // One of the part's layers has its sums in host memory.  Parts send them in
  // order, but those of no bytes overtake others.
  void SumsDown(const PartRun& run);
  // After a part was sent or a lap was done: the laps that may upload now.
  void AdmitLaps();
  bool MayUpload(const Boundary& boundary) const {
    return std::any_of(
        uploads.begin(), uploads.end(),
        [&](const Upload& upload) { return upload.boundary == boundary; });
  }
  // No trace of the part is left.
  void Forget(const PartRun& run);
};

struct DeviceRun {
  std::vector<DeviceLane> lanes;  // per job
  PartRun* current = nullptr;     // began, and is not computed
  // A backfill part in a layer, while `current` waits or there is none.
  PartRun* guest = nullptr;
  std::optional<PartRun::Op> op;  // of the guest, else of `current`
  int64_t op_end_ns = TransferRates::kNever;
  std::deque<Transfer> held_weights;  // until host work is done, in order
  int64_t laps_sent = 0;
  // Since it was last asked for more work; an activation that came down may
  // only be the next upload.
  bool changed = true;
  bool input_came = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_DEVICE_RUN_H_
