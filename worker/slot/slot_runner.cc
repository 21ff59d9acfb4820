#include "worker/slot/slot_runner.h"

#include <string>
#include <utility>

#include "base/status.h"

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
      board_(device, arena.doorbells().bell[index]) {}

absl::Status SlotRunner::Start(int index) {
  ASSIGN_OR_RETURN(stream_, device_.NewStream());
  CopyQueueOptions copies;
  copies.chunk_bytes = options_.chunk_bytes;
  copies.link_gbps = options_.link_gbps;
  copies.direction = wire::Direction::kH2D;
  ASSIGN_OR_RETURN(uploads_, CopyQueue::Create(device_, copies));
  copies.direction = wire::Direction::kD2H;
  ASSIGN_OR_RETURN(downloads_, CopyQueue::Create(device_, copies));
  feeder_ = std::make_unique<SlotFeeder>(board_, *uploads_, device_, arena_,
                                         index, outbox_, pulse_);
  feeder_thread_ = std::thread([this] { feeder_->Run(); });
  compute_thread_ = std::thread([this] { Compute(); });
  return absl::OkStatus();
}

SlotRunner::~SlotRunner() {
  board_.Stop();
  if (feeder_thread_.joinable()) feeder_thread_.join();
  if (compute_thread_.joinable()) compute_thread_.join();
  uploads_.reset();
  downloads_.reset();
}

void SlotRunner::Submit(uint64_t attempt, int64_t received_ns,
                        wire::RunSlot command,
                        std::shared_ptr<const JobTables> tables) {
  const uint64_t number = command.slot;
  const auto take = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(SlotPlan plan,
                     PlanSlot(command, *tables, arena_.size_bytes(),
                              device_.memory().limit_bytes));
    return board_.Add(
        std::make_unique<SlotState>(attempt, received_ns, std::move(command),
                                    std::move(tables), std::move(plan)));
  };
  const absl::Status taken = take();
  if (taken.ok()) return;
  outbox_.Send(attempt,
               wire::Failed{number, static_cast<uint32_t>(taken.code()),
                            std::string(taken.message())});
}

void SlotRunner::Compute() {
  options_.prepare_compute_thread();
  while (SlotState* slot = board_.NextToCompute()) ComputeSlot(*slot);
}

void SlotRunner::ComputeSlot(SlotState& slot) {
  const ComputeContext context{board_, *downloads_, *stream_,
                               arena_, outbox_,     options_.make_run};
  absl::Status status = SlotComputation(context, slot).Run();
  board_.Update([&] {
    slot.phase = ComputePhase::kComputed;
    if (status.ok()) {
      slot.ReleaseInputs();
    } else if (!slot.abandoned) {
      slot.Fail(std::move(status));
    }
  });
}

}  // namespace roundhouse::worker
