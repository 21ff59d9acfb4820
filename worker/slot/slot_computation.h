// The computation of one slot on the compute thread: its micro-batches in
// order, each layer as soon as its weights are there, outputs handed to the
// download queue, gradients added up.
//
// On a GPU the thread queues a micro-batch's work and then waits for it, once:
// until then nothing that the work reads or writes is given back.
//
// Thread rule: the compute thread only.  It holds no lock while a layer runs.
#ifndef ROUNDHOUSE_WORKER_SLOT_SLOT_COMPUTATION_H_
#define ROUNDHOUSE_WORKER_SLOT_SLOT_COMPUTATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "worker/board/compute_clock.h"
#include "worker/board/download.h"
#include "worker/board/slot_board.h"
#include "worker/device/device.h"
#include "worker/model/stage_run.h"
#include "worker/outbox.h"
#include "worker/slot/device_turn.h"
#include "worker/slot/gradient_sums.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

// Makes the runs of micro-batches: StageRun::Create, or a test's.
using StageRunFactory = std::function<absl::StatusOr<std::unique_ptr<StageRun>>(
    const StageRunOptions&)>;

// What a computation works with; everything outlives it.
struct ComputeContext {
  SlotBoard& board;
  CopyQueue& downloads;
  Stream& stream;
  wire::Arena& arena;
  Outbox& outbox;
  const StageRunFactory& make_run;
  DeviceTurn& turn;
  int64_t idle_since_ns;  // the compute thread computed until then
  // The slot was taken while the oldest one lacked its inputs.
  bool fills_bubble;
};

class SlotComputation : private SumStore {
 public:
  SlotComputation(const ComputeContext& context, Slot& slot);

  // Sends SlotStarted and a MicroBatchDone each; of a backfill slot
  // BackfillComputed instead.  CANCELLED: the slot was given up; else what the
  // model or the device said.
  absl::Status Run();
  // REQUIRES: Run was called.
  ComputeRecord TakeRecord() { return std::move(record_); }

 private:
  absl::Status RunMicroBatches();
  absl::Status Start();
  void SendMicroBatchDone(size_t m);
  absl::Status RunMicroBatch(size_t m);
  absl::Status SetPositions(StageRun& run, size_t m);
  absl::Status Forward(StageRun& run, size_t m);
  absl::Status ForwardLayer(StageRun& run, size_t m, uint32_t layer,
                            const LayerWeights& weights);
  void CountLoads(const wire::SlotMicroBatch& micro_batch,
                  const LayerPicks& picks);
  absl::Status RunHead(StageRun& run, size_t m);
  absl::Status Backward(StageRun& run, size_t m);
  absl::StatusOr<ComputeClock::Mark> BeginLayer(uint32_t layer,
                                                PassDirection direction);
  absl::StatusOr<LayerWeights> AwaitWeights(uint32_t layer);
  // `late`: what the bytes in the arena were waited for.
  absl::StatusOr<DeviceBuffer*> AwaitUpload(const UploadName& upload,
                                            wire::WaitCause late);
  absl::StatusOr<SlotBoard::Taken> AwaitBuffer(const PoolName& pool);
  wire::WaitCause InputCause() const;
  void SplitFirstWait(const SlotBoard::Arrived& input);
  absl::Status CheckWanted();

  using Fill = std::function<absl::Status(std::byte*)>;
  // Downloads the micro-batch's outputs at `boundary`, written by `fill`.
  absl::Status Emit(size_t m, uint32_t boundary, wire::OutputKind kind,
                    const Fill& fill);
  absl::Status EmitOutput(uint32_t output, const Fill& fill);
  // After what was queued so far.
  absl::Status Send(Download download);
  // Activations go before sums, but for the last gradient of the embedding's
  // rows: nobody waits for it, and for its layer's sums the next step does.
  CopyPriority PriorityOf(const wire::SlotOutput& output) const;

  void FillTimes();

  absl::StatusOr<DeviceBuffer*> TakeSum(size_t unit) override;
  void GiveSum(size_t unit, DeviceBuffer* sum) override;
  absl::Status SendSum(size_t unit, uint32_t contribution,
                       DeviceBuffer* sum) override;
  absl::Status HoldSum(size_t unit, uint32_t contribution, DeviceBuffer* sum);

  const ComputeContext& context_;
  DeviceTurn& turn_;
  Slot& slot_;
  const wire::RunSlot& command_;
  const JobTables& tables_;
  GradientSums sums_;
  ComputeClock clock_;
  wire::WaitTimes waits_ = {};  // not sent yet
  ComputeRecord record_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_SLOT_COMPUTATION_H_
