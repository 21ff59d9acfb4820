#include "worker/slot/device_worker.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/outbox.h"
#include "worker/transfer/pinned_arena.h"

namespace roundhouse::worker {
namespace {

class DeviceWorker {
 public:
  DeviceWorker(const WorkerContext& context, Device& device)
      : context_(context), device_(device), outbox_(context.channel) {}

  absl::Status Run(SlotRunnerOptions options) {
    ASSIGN_OR_RETURN(
        runner_, SlotRunner::Create(std::move(options), device_, context_.arena,
                                    context_.index, outbox_));
    const LinkBandwidth link = device_.link_bandwidth();
    outbox_.Send(
        0, wire::Hello{.pid = static_cast<uint32_t>(getpid()),
                       .device_memory_bytes = device_.memory().limit_bytes,
                       .h2d_bytes_per_second = link.to_device,
                       .d2h_bytes_per_second = link.to_host});
    pinned_ = std::make_unique<PinnedArena>(device_, context_.arena);
    const Heartbeats heartbeats(outbox_, {&pulse_, &runner_->pulse()},
                                [this] { return pinned_->pinned_bytes(); });
    return Serve();
  }

 private:
  absl::Status Serve();
  absl::Status AwaitMessage() const;
  void Handle(uint64_t attempt, wire::Body body);
  void Configure(uint64_t attempt, const wire::ConfigureJob& command);
  void Release(uint64_t job);
  void Submit(uint64_t attempt, wire::RunSlot command);
  void Submit(uint64_t attempt, wire::RunSample command);
  // Null: it answered Failed for the `what` numbered `id`.
  std::shared_ptr<const JobTables> TablesOf(uint64_t job, uint64_t attempt,
                                            const char* what, uint64_t id);
  void Fail(uint64_t attempt, uint64_t id, const absl::Status& status) {
    outbox_.Send(attempt, wire::FailedWith(id, status));
  }

  const WorkerContext& context_;
  Device& device_;
  Outbox outbox_;
  Pulse pulse_;
  std::unique_ptr<PinnedArena> pinned_;  // outlives the runner's copies
  std::unique_ptr<SlotRunner> runner_;
  std::map<uint64_t, std::shared_ptr<const JobTables>> jobs_;
};

absl::Status DeviceWorker::AwaitMessage() const {
  pollfd channel{context_.channel.fd(), POLLIN, 0};
  const int wait_ms =
      static_cast<int>(absl::ToInt64Milliseconds(Heartbeats::kMaxWait));
  if (poll(&channel, 1, wait_ms) < 0 && errno != EINTR) {
    return absl::InternalError(
        absl::StrCat("poll of the channel: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status DeviceWorker::Serve() {
  while (true) {
    pulse_.Beat();
    pinned_->Update();
    RETURN_IF_ERROR(AwaitMessage());
    absl::StatusOr<std::optional<wire::Message>> received =
        context_.channel.TryReceive();
    if (absl::IsInvalidArgument(received.status())) {
      RH_LOG(kError) << received.status().ToString();
      continue;
    }
    RETURN_IF_ERROR(received.status());
    if (!received->has_value()) continue;
    wire::Message& message = **received;
    if (std::holds_alternative<wire::Stop>(message.body)) {
      return absl::OkStatus();
    }
    Handle(message.attempt, std::move(message.body));
  }
}

void DeviceWorker::Handle(uint64_t attempt, wire::Body body) {
  if (const auto* configure = std::get_if<wire::ConfigureJob>(&body)) {
    Configure(attempt, *configure);
  } else if (const auto* release = std::get_if<wire::ReleaseJob>(&body)) {
    Release(release->job);
  } else if (auto* slot = std::get_if<wire::RunSlot>(&body)) {
    Submit(attempt, std::move(*slot));
  } else if (auto* sample = std::get_if<wire::RunSample>(&body)) {
    Submit(attempt, std::move(*sample));
  } else if (const auto* withdraw = std::get_if<wire::Withdraw>(&body)) {
    runner_->Withdraw(withdraw->target_attempt);
  } else if (const auto* turn = std::get_if<wire::SetTurn>(&body)) {
    runner_->SetTurn(turn->target_attempt, turn->turn);
  } else if (auto* sums = std::get_if<wire::PeerSums>(&body)) {
    runner_->DecideSums(std::move(*sums));
  } else if (const auto* join = std::get_if<wire::JoinPeers>(&body)) {
    runner_->JoinPeers(*join);
  } else if (const auto* leave = std::get_if<wire::LeavePeers>(&body)) {
    runner_->LeavePeers(*leave);
  } else {
    RH_LOG(kError) << "message " << body.index()
                   << " is not for a device worker";
  }
}

void DeviceWorker::Configure(uint64_t attempt,
                             const wire::ConfigureJob& command) {
  auto tables = ReadJobTables(context_.arena, command.layout_offset);
  if (!tables.ok()) return Fail(attempt, command.job, tables.status());
  runner_->ForgetSample(command.job);
  jobs_[command.job] = *std::move(tables);
  outbox_.Send(attempt, wire::JobConfigured{command.job});
}

void DeviceWorker::Release(uint64_t job) {
  jobs_.erase(job);
  runner_->ForgetSample(job);
}

std::shared_ptr<const JobTables> DeviceWorker::TablesOf(uint64_t job,
                                                        uint64_t attempt,
                                                        const char* what,
                                                        uint64_t id) {
  const auto found = jobs_.find(job);
  if (found != jobs_.end()) return found->second;
  Fail(attempt, id,
       absl::FailedPreconditionError(
           absl::StrCat(what, " ", id, ": job ", job,
                        " is not configured on worker ", context_.index)));
  return nullptr;
}

void DeviceWorker::Submit(uint64_t attempt, wire::RunSlot command) {
  const int64_t received_ns = MonotonicNs();
  KillPoint("slot.received");
  auto tables = TablesOf(command.job, attempt, "slot", command.slot);
  if (tables == nullptr) return;
  runner_->Submit(attempt, received_ns, std::move(command), std::move(tables));
}

void DeviceWorker::Submit(uint64_t attempt, wire::RunSample command) {
  auto tables = TablesOf(command.job, attempt, "sample", command.sample);
  if (tables == nullptr) return;
  runner_->SubmitSample(attempt, std::move(command), std::move(tables));
}

}  // namespace

absl::Status RunDeviceWorker(const WorkerContext& context, Device& device,
                             SlotRunnerOptions options) {
  return DeviceWorker(context, device).Run(std::move(options));
}

}  // namespace roundhouse::worker
