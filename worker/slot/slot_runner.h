// Runs the slots of one device worker, in the order they come, samples between
// them, and slots of backfill jobs while the others wait: copy queues, the
// feeder, the compute thread and the backfill thread around one SlotBoard.
//
//   SlotRunner::Create(options, device, arena, index, outbox)
//   runner->Submit(attempt, received_ns, command, tables)  // for each RunSlot
//   runner->SubmitSample(attempt, command, tables)       // for each RunSample
//   runner->Withdraw(attempt)
//
// Each submitted slot is answered once: SlotDone, Withdrawn or Failed;
// SlotStarted and MicroBatchDone or BackfillComputed come before.  Each sample
// is answered once: SampleDone or Failed; SlotStarted comes before.
//
// Thread rule: Submit, SubmitSample, ForgetSample and Withdraw by one thread.
// Owns its threads; destroying it gives every slot and sample up without an
// answer and joins them.
#ifndef ROUNDHOUSE_WORKER_SLOT_SLOT_RUNNER_H_
#define ROUNDHOUSE_WORKER_SLOT_SLOT_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "base/wire/arena.h"
#include "worker/board/held_sums.h"
#include "worker/board/job_tables.h"
#include "worker/board/slot_board.h"
#include "worker/device/device.h"
#include "worker/model/generation.h"
#include "worker/outbox.h"
#include "worker/peers/peer_exchange.h"
#include "worker/slot/slot_computation.h"
#include "worker/slot/slot_feeder.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

struct SlotRunnerOptions {
  StageRunFactory make_run;
  GenerationFactory make_generation;
  // Called first on each thread that computes: SetComputeThreads in a real
  // worker.
  std::function<void()> prepare_compute_thread = [] {};
  double link_gbps = 0;  // per direction, 10^9 bits per second; 0: no throttle
  uint64_t chunk_bytes = 0;  // of bulk copies; 0: as the device likes them
  // It exchanges sums with other devices (peer_exchange.h).
  bool peers = false;
};

class SlotRunner {
 public:
  // `device`, `arena` and `outbox` outlive it.
  static absl::StatusOr<std::unique_ptr<SlotRunner>> Create(
      SlotRunnerOptions options, Device& device, wire::Arena& arena, int index,
      Outbox& outbox);
  ~SlotRunner();
  SlotRunner(const SlotRunner&) = delete;
  SlotRunner& operator=(const SlotRunner&) = delete;

  // Takes the slot or answers Failed.
  void Submit(uint64_t attempt, int64_t received_ns, wire::RunSlot command,
              std::shared_ptr<const JobTables> tables);

  // Takes the sample or answers Failed.
  void SubmitSample(uint64_t attempt, wire::RunSample command,
                    std::shared_ptr<const JobTables> tables);
  // The job's tables change or go: so does what is kept of its sample.
  void ForgetSample(uint64_t job) { board_.ForgetSample(job); }

  // Asks for the attempt back; nothing happens when it is not here any more.
  void Withdraw(uint64_t attempt) { board_.Withdraw(attempt); }
  void SetTurn(uint64_t attempt, uint64_t turn) {
    board_.SetTurn(attempt, turn);
  }

  // PeersLeft answers where the runner has no peers.
  void JoinPeers(const wire::JoinPeers& command);
  void LeavePeers(const wire::LeavePeers& command);
  void DecideSums(wire::PeerSums command);

  // The feeder's sign of life.
  const Pulse& pulse() const { return pulse_; }

  CopyCounters upload_counters() const { return uploads_->counters(); }
  CopyCounters download_counters() const { return downloads_->counters(); }

 private:
  SlotRunner(SlotRunnerOptions options, Device& device, wire::Arena& arena,
             int index, Outbox& outbox);
  absl::Status Start(int index);
  void Compute();
  void ComputeBackfill();
  void ComputeSlot(const SlotBoard::Work& work, Stream& stream,
                   DeviceTurn& turn);
  void ComputeSample(SlotBoard::Work work);
  void Fail(uint64_t attempt, uint64_t id, const absl::Status& status);

  const SlotRunnerOptions options_;
  Device& device_;
  wire::Arena& arena_;
  Outbox& outbox_;
  Pulse pulse_;
  SlotBoard board_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> backfill_stream_;
  int64_t idle_since_ns_ = 0;  // of the compute thread, which uses it
  // Destroyed before the board: their last callbacks look at its slots.
  std::unique_ptr<CopyQueue> uploads_;
  std::unique_ptr<CopyQueue> downloads_;
  std::unique_ptr<HeldSums> held_;
  std::unique_ptr<PeerExchange> exchange_;  // null: without peers
  std::unique_ptr<SlotFeeder> feeder_;
  std::thread feeder_thread_;
  std::thread compute_thread_;
  std::thread backfill_thread_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SLOT_SLOT_RUNNER_H_
