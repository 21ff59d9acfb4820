// When a computation may use the device: one of the compute thread always, but
// in its waits; one of the backfill thread in these, a layer at a time
// (worker/board/compute_turns.h).
//
// Thread rule: each is its thread's own.
#ifndef ROUNDHOUSE_WORKER_SLOT_DEVICE_TURN_H_
#define ROUNDHOUSE_WORKER_SLOT_DEVICE_TURN_H_

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/work_kinds.h"
#include "worker/board/compute_clock.h"
#include "worker/board/compute_turns.h"
#include "worker/board/recent_times.h"
#include "worker/board/slot_board.h"
#include "worker/device/device.h"
#include "worker/outbox.h"

namespace roundhouse::worker {

class DeviceTurn : public SlotBoard::WaitWatch {
 public:
  // Slots of backfill jobs: what they wait for is no bubble of the device, and
  // BackfillComputed says when they are computed.
  virtual bool backfill() const = 0;
  // The slot's micro-batch that is computed from now on.
  virtual void SetMicroBatch(const Slot& slot, size_t micro_batch) = 0;
  // What the next Begin waits for: an upload or a buffer of the slot.
  virtual void WaitFor(WaitPlace::For what, uint64_t index) = 0;
  // Blocks until the pass of the layer may be computed; the clock notes how
  // long.  CANCELLED: the slot is given up.
  virtual absl::Status BeginLayer(uint32_t layer, PassDirection direction,
                                  ComputeClock& clock) = 0;
  // The pass is queued on the stream, and what follows from it.
  virtual absl::Status EndLayer() = 0;
  // The device is used no more, for now.
  virtual void GiveBack() = 0;
};

class ComputeThreadTurn final : public DeviceTurn {
 public:
  // Both outlive it.
  ComputeThreadTurn(SlotBoard& board, Stream& stream)
      : board_(board), stream_(stream) {}

  // The thread's slot or sample is over.
  void WaitForNext() { place_.what = next_; }

  bool backfill() const override { return false; }
  void SetMicroBatch(const Slot& slot, size_t micro_batch) override;
  void WaitFor(WaitPlace::For what, uint64_t index) override;
  absl::Status BeginLayer(uint32_t, PassDirection, ComputeClock&) override {
    return absl::OkStatus();
  }
  absl::Status EndLayer() override { return absl::OkStatus(); }
  void GiveBack() override {}
  void Begin() override;
  void End() override { board_.turns().EndWait(); }

 private:
  SlotBoard& board_;
  Stream& stream_;
  WaitPlace place_;
  WaitPlace::For next_ = WaitPlace::For::kNothingKnown;
};

class BackfillThreadTurn final : public DeviceTurn {
 public:
  // All outlive it.
  BackfillThreadTurn(SlotBoard& board, Stream& stream, Outbox& outbox)
      : board_(board), stream_(stream), outbox_(outbox) {}

  bool backfill() const override { return true; }
  void SetMicroBatch(const Slot& slot, size_t micro_batch) override;
  void WaitFor(WaitPlace::For, uint64_t) override {}
  absl::Status BeginLayer(uint32_t layer, PassDirection direction,
                          ComputeClock& clock) override;
  // Waits for it: work that is queued and not done would hold the device when
  // the thread gives it back.
  absl::Status EndLayer() override;
  void GiveBack() override;
  // In the middle of a layer it takes the device again.
  void Begin() override;
  void End() override;

  // At the latest then it tells what it computed.
  static constexpr absl::Duration kTellEvery = absl::Milliseconds(50);

 private:
  // A layer's passes are alike, and the shortest of the last ones waited
  // neither for a core nor for a library's first call.
  using Pass = std::tuple<uint64_t, uint32_t, PassDirection>;  // job, layer

  // What the pass takes; where nothing is known, as the job's last ones.
  int64_t TakesNs() const;
  void Tell(int64_t now_ns);
  bool Take();

  SlotBoard& board_;
  Stream& stream_;
  Outbox& outbox_;
  RecentTimes<Pass> passes_;
  RecentTimes<uint64_t> any_pass_;  // by job
  const Slot* slot_ = nullptr;
  uint32_t index_ = 0;  // of the micro-batch
  Pass pass_;
  bool in_layer_ = false;
  bool interrupted_ = false;  // by a wait: its time says nothing
  int64_t layer_began_ns_ = 0;
  int64_t taken_ns_ = 0;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_DEVICE_TURN_H_
