#include "worker/slot/slot_runner.h"

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "worker/board/lost_device.h"
#include "worker/sample/sample_computation.h"

namespace roundhouse::worker {

absl::StatusOr<std::unique_ptr<SlotRunner>> SlotRunner::Create(
    SlotRunnerOptions options, Device& device, wire::Arena& arena, int index,
    Outbox& outbox) {
  std::unique_ptr<SlotRunner> runner(
      new SlotRunner(std::move(options), device, arena, index, outbox));
  RETURN_IF_ERROR(runner->Start(index));
  return runner;
}

SlotRunner::SlotRunner(SlotRunnerOptions options, Device& device,
                       wire::Arena& arena, int index, Outbox& outbox)
    : options_(std::move(options)),
      device_(device),
      arena_(arena),
      outbox_(outbox),
      board_(device, arena.doorbells().bell[index],
             options_.peers ? wire::kPeerScratchBytes : 0) {}

absl::Status SlotRunner::Start(int index) {
  ASSIGN_OR_RETURN(stream_, device_.NewStream());
  ASSIGN_OR_RETURN(backfill_stream_, device_.NewStream());
  CopyQueueOptions copies;
  copies.chunks = device_.copy_chunks();
  if (options_.chunk_bytes > 0) copies.chunks.bytes = options_.chunk_bytes;
  copies.host_pieces = {arena_.base(), arena_.header().piece_bytes};
  copies.link_gbps = options_.link_gbps;
  copies.direction = wire::Direction::kH2D;
  ASSIGN_OR_RETURN(uploads_, CopyQueue::Create(device_, copies));
  copies.direction = wire::Direction::kD2H;
  ASSIGN_OR_RETURN(downloads_, CopyQueue::Create(device_, copies));
  held_ = std::make_unique<HeldSums>(board_, *downloads_, arena_);
  if (options_.peers) {
    ASSIGN_OR_RETURN(exchange_,
                     PeerExchange::Create(device_, board_, *held_, *downloads_,
                                          arena_, outbox_));
  }
  feeder_ = std::make_unique<SlotFeeder>(
      FeederContext{.board = board_,
                    .uploads = *uploads_,
                    .held = *held_,
                    .device = device_,
                    .arena = arena_,
                    .doorbell = arena_.doorbells().bell[index],
                    .outbox = outbox_,
                    .pulse = pulse_});
  feeder_thread_ = std::thread([this] { feeder_->Run(); });
  // Before the thread, which may come late: from now on it could compute.
  idle_since_ns_ = MonotonicNs();
  compute_thread_ = std::thread([this] { Compute(); });
  backfill_thread_ = std::thread([this] { ComputeBackfill(); });
  return absl::OkStatus();
}

SlotRunner::~SlotRunner() {
  board_.Stop();
  if (feeder_thread_.joinable()) feeder_thread_.join();
  if (compute_thread_.joinable()) compute_thread_.join();
  if (backfill_thread_.joinable()) backfill_thread_.join();
  exchange_.reset();  // it waits for copies
  uploads_.reset();
  downloads_.reset();
}

void SlotRunner::Submit(uint64_t attempt, int64_t received_ns,
                        wire::RunSlot command,
                        std::shared_ptr<const JobTables> tables) {
  const uint64_t number = command.slot;
  const auto take = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(
        SlotPlan plan,
        PlanSlot(command, *tables, arena_.size_bytes(), board_.memory()));
    return board_.Add(
        std::make_unique<SlotState>(attempt, received_ns, std::move(command),
                                    std::move(tables), std::move(plan)));
  };
  const absl::Status taken = take();
  if (!taken.ok()) Fail(attempt, number, taken);
}

void SlotRunner::SubmitSample(uint64_t attempt, wire::RunSample command,
                              std::shared_ptr<const JobTables> tables) {
  const uint64_t number = command.sample;
  const auto take = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(SamplePlan plan,
                     PlanSample(command, *tables, arena_, board_.memory()));
    return board_.AddSample(std::make_unique<SampleState>(
        attempt, std::move(command), std::move(tables), std::move(plan)));
  };
  const absl::Status taken = take();
  if (!taken.ok()) Fail(attempt, number, taken);
}

void SlotRunner::JoinPeers(const wire::JoinPeers& command) {
  if (exchange_ != nullptr) return exchange_->Join(command);
  outbox_.Send(0, wire::PeersLeft{command.group, "this worker has no peers"});
}

void SlotRunner::LeavePeers(const wire::LeavePeers& command) {
  if (exchange_ != nullptr) exchange_->Leave(command);
}

void SlotRunner::DecideSums(wire::PeerSums command) {
  switch (command.verb) {
    case wire::PeerVerb::kExchange:
      if (exchange_ != nullptr) exchange_->Exchange(std::move(command));
      break;
    case wire::PeerVerb::kDownload:
      held_->Download(command.target_attempt, command.unit);
      break;
    case wire::PeerVerb::kRelease:
      held_->Release(command.target_attempt, command.unit);
      break;
  }
}

void SlotRunner::Fail(uint64_t attempt, uint64_t id,
                      const absl::Status& status) {
  EndProcessIfLost(status);
  outbox_.Send(attempt, wire::FailedWith(id, status));
}

void SlotRunner::Compute() {
  options_.prepare_compute_thread();
  ComputeThreadTurn turn(board_, *stream_);
  while (true) {
    SlotBoard::Work work = board_.NextToCompute(turn);
    if (work.slot != nullptr) {
      ComputeSlot(work, *stream_, turn);
    } else if (work.sample != nullptr) {
      ComputeSample(std::move(work));
    } else {
      return;
    }
    idle_since_ns_ = MonotonicNs();
    turn.WaitForNext();
  }
}

void SlotRunner::ComputeBackfill() {
  options_.prepare_compute_thread();
  BackfillThreadTurn turn(board_, *backfill_stream_, outbox_);
  while (true) {
    const SlotBoard::Work work = board_.NextBackfill();
    if (work.slot == nullptr) return;
    ComputeSlot(work, *backfill_stream_, turn);
  }
}

void SlotRunner::ComputeSample(SlotBoard::Work work) {
  const int64_t now_ns = MonotonicNs();
  outbox_.Send(work.sample->attempt,
               wire::SlotStarted{.slot = work.sample->command.sample,
                                 .received_ns = now_ns,
                                 .time_ns = now_ns});
  const SampleContext context{board_,   *uploads_, device_,
                              *stream_, arena_,    options_.make_generation};
  absl::StatusOr<wire::SampleDone> done =
      SampleComputation(context, *work.sample, work.cache).Run();
  if (!done.ok()) work.cache = SampleCache();
  board_.EndSample(std::move(work.cache));
  if (board_.stopping()) return;
  if (done.ok()) {
    outbox_.Send(work.sample->attempt, *std::move(done));
  } else {
    Fail(work.sample->attempt, work.sample->command.sample, done.status());
  }
}

void SlotRunner::ComputeSlot(const SlotBoard::Work& work, Stream& stream,
                             DeviceTurn& turn) {
  const ComputeContext context{
      .board = board_,
      .downloads = *downloads_,
      .stream = stream,
      .arena = arena_,
      .outbox = outbox_,
      .make_run = options_.make_run,
      .turn = turn,
      .idle_since_ns = turn.backfill() ? 0 : idle_since_ns_,
      .fills_bubble = work.fills_bubble};
  SlotComputation computation(context, *work.slot);
  absl::Status status = computation.Run();
  board_.EndCompute(*work.slot, std::move(status), computation.TakeRecord());
}

}  // namespace roundhouse::worker
