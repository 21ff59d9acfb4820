// ProcessPool: how processes begin and end, and devices that are taken out.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire/exit_status.h"
#include "server/workers/process_pool.h"
#include "server/workers/worker_arguments.h"

namespace roundhouse {
namespace {

// What starting a worker opens, with its nursery's start.
constexpr int kSpawnDescriptors = 12;

// Whether what Spawn says passes: descriptors, processes or memory have run
// out, or the nursery has much to do.  No fault of the worker's.
bool IsShortage(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

}  // namespace

absl::Status ProcessPool::Start(Listener* listener) {
  listener_ = listener;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const auto id = static_cast<WorkerId>(i);
    if (!workers_[i].info.taken_out.empty()) continue;
    const absl::Status status = Spawn(id);
    if (!IsShortage(status)) {
      RETURN_IF_ERROR(status);
      continue;
    }
    RH_LOG(kWarning) << "worker " << i << " waits: " << status;
    SpawnLater(id, options_.restart_delay);
  }
  CheckSilenceLater();
  return absl::OkStatus();
}

int ProcessPool::Threads(WorkerId id) const {
  return info(id).role == WorkerRole::kDevice ? options_.device_threads
                                              : options_.host_threads;
}

Nursery& ProcessPool::NurseryOf(WorkerId id) {
  const int threads = Threads(id);
  std::unique_ptr<Nursery>& nursery = nurseries_[threads];
  if (nursery != nullptr) return *nursery;
  NurseryOptions options;
  options.program = options_.worker_program;
  options.environment = WorkerEnvironment(threads);
  nursery = std::make_unique<Nursery>(loop_, std::move(options));
  return *nursery;
}

std::vector<std::string> ProcessPool::Arguments(WorkerId id) {
  std::vector<std::string> arguments =
      WorkerArguments(options_, {.id = id,
                                 .role = info(id).role,
                                 .threads = Threads(id),
                                 .again = info(id).starts > 0});
  std::deque<std::string>& kill_at = options_.kill_at[id];
  if (!kill_at.empty()) {
    arguments.push_back(absl::StrCat("--kill-at=", kill_at.front()));
    kill_at.pop_front();
  }
  return arguments;
}

absl::Status ProcessPool::Spawn(WorkerId id) {
  Worker& worker = At(id);
  RETURN_IF_ERROR(CheckDescriptorsLeft(kSpawnDescriptors));
  ASSIGN_OR_RETURN(auto channels, wire::Channel::Pair());
  ASSIGN_OR_RETURN(OutputPipe errors, MakeOutputPipe());
  auto ends = std::make_shared<Ends>();
  ends->channel = std::move(channels.first);
  ends->errors = std::move(errors.read_end);
  wire::SpawnRequest request;
  request.arguments = Arguments(id);
  request.descriptors = {errors.write_end.get(), errors.write_end.get(),
                         channels.second->fd(), arena_.arena().fd()};
  if (options_.lock_fd >= 0) request.descriptors.push_back(options_.lock_fd);
  const absl::Status asked = NurseryOf(id).Spawn(
      request, [this, id, ends](const absl::StatusOr<pid_t>& pid) {
        OnSpawned(id, pid, *ends);
      });
  RETURN_IF_ERROR(asked);
  worker.awaited = true;
  ++worker.info.starts;
  return absl::OkStatus();
}

void ProcessPool::OnSpawned(WorkerId id, const absl::StatusOr<pid_t>& pid,
                            Ends& ends) {
  Worker& worker = At(id);
  worker.awaited = false;
  const absl::Status adopted = pid.ok() ? Adopt(id, *pid, ends) : pid.status();
  if (adopted.ok() && (stopping_ || !worker.info.taken_out.empty())) {
    worker.process->Kill(SIGKILL);
  }
  if (adopted.ok()) return;
  RH_LOG(kError) << "worker " << Number(id) << ": " << adopted;
  if (stopping_) {
    TellIfStopped();
    return;
  }
  if (!worker.info.taken_out.empty()) return TellIfOut(id);
  if (pid.ok() && IsShortage(adopted)) {
    SpawnLater(id, options_.restart_delay);
    return;
  }
  ++worker.fruitless_deaths;
  listener_->OnStartFailed(id, std::string(adopted.message()));
  Restart(id, std::string(adopted.message()));
}

absl::Status ProcessPool::Adopt(WorkerId id, pid_t pid, Ends& ends) {
  Worker& worker = At(id);
  ASSIGN_OR_RETURN(
      worker.process,
      ChildProcess::Adopt(loop_, pid, std::move(ends.errors),
                          [this, id](int status) { OnExit(id, status); }));
  worker.channel = std::move(ends.channel);
  worker.info.pid = pid;
  worker.ended = false;
  worker.last_heard_ns = loop_.clock().MonotonicNs();
  loop_.Watch(worker.channel->fd(), EPOLLIN, [this, id](uint32_t events) {
    if ((events & EPOLLOUT) != 0) FlushUnsent(id);
    if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) ReadChannel(id);
  });
  return absl::OkStatus();
}

bool ProcessPool::IsUnable(WorkerId id, int wait_status) const {
  const Worker& worker = workers_[Number(id)];
  return options_.on_unable && worker.info.role == WorkerRole::kDevice &&
         !worker.was_up && WIFEXITED(wait_status) &&
         WEXITSTATUS(wait_status) == wire::kUnableExit;
}

void ProcessPool::OnExit(WorkerId id, int wait_status) {
  Worker& worker = At(id);
  worker.ended = true;
  Drain(id);
  loop_.Unwatch(worker.channel->fd());
  worker.channel.reset();
  worker.unsent.clear();
  worker.blocked = false;
  const bool was_up = std::exchange(worker.info.up, false);
  std::string why = absl::StrCat(RoleName(worker.info.role), " worker ",
                                 Number(id), " ", DescribeExit(wait_status));
  const std::string reason = std::exchange(worker.killed_for, "");
  if (!reason.empty()) absl::StrAppend(&why, ": ", reason);
  if (!worker.process->stderr_tail().empty()) {
    absl::StrAppend(&why, "; its last words:\n", worker.process->stderr_tail());
  }
  worker.info.pid = 0;
  worker.info.pinned_bytes = 0;
  worker.work = {};
  const auto process = std::move(worker.process);
  ++worker.fruitless_deaths;
  if (stopping_) {
    TellIfStopped();
    return;
  }
  if (!worker.info.taken_out.empty()) {
    if (was_up) {
      worker.replies.Lose(id, worker.info.taken_out);
      listener_->OnWorkerDown(id, worker.info.taken_out);
    }
    return TellIfOut(id);
  }
  RH_LOG(kWarning) << why.substr(0, why.find('\n'));
  if (IsUnable(id, wait_status)) {
    options_.on_unable(why);
    return;
  }
  if (was_up) {
    worker.replies.Lose(id, why);
    listener_->OnWorkerDown(id, why);
  } else {
    listener_->OnStartFailed(id, why);
  }
  Restart(id, why);
}

void ProcessPool::TellIfStopped() {
  const bool all_gone =
      std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
        return worker.process == nullptr && !worker.awaited;
      });
  if (all_gone && stopped_) std::exchange(stopped_, nullptr)();
}

void ProcessPool::TakeOut(DeviceId device, const std::string& why) {
  const WorkerId id = DeviceWorker(device);
  Worker& worker = At(id);
  if (!worker.info.taken_out.empty()) return;
  worker.info.taken_out = why;
  worker.info.lost = false;
  if (worker.process == nullptr) {
    loop_.After(absl::ZeroDuration(), [this, id] { TellIfOut(id); });
  } else if (worker.info.up) {
    AskToStop(id);
    KillLater(id);
  } else {
    worker.process->Kill(SIGKILL);
  }
}

void ProcessPool::TellIfOut(WorkerId id) {
  const Worker& worker = At(id);
  if (worker.info.taken_out.empty() || worker.process != nullptr ||
      worker.awaited) {
    return;
  }
  RH_LOG(kInfo) << worker.info.taken_out;
  listener_->OnDeviceLost(static_cast<DeviceId>(Number(id)),
                          worker.info.taken_out);
}

void ProcessPool::BringBack(DeviceId device) {
  const WorkerId id = DeviceWorker(device);
  if (!gone(device)) return;
  Worker& worker = At(id);
  worker.patient = !worker.info.taken_out.empty();
  worker.info.taken_out.clear();
  worker.info.lost = false;
  worker.was_up = true;  // the daemon goes on whatever its GPU is now
  worker.fruitless_deaths = 0;
  // Else it ends first.
  if (worker.process == nullptr) SpawnLater(id, absl::ZeroDuration());
}

void ProcessPool::Restart(WorkerId id, const std::string& why) {
  Worker& worker = At(id);
  const bool device = worker.info.role == WorkerRole::kDevice;
  if (device && !worker.patient &&
      worker.fruitless_deaths >= kMaxFruitlessDeaths) {
    worker.info.lost = true;
    listener_->OnDeviceLost(static_cast<DeviceId>(Number(id)), why);
    return;
  }
  const bool at_once = worker.fruitless_deaths <= 1;
  SpawnLater(id, at_once          ? absl::ZeroDuration()
                 : worker.patient ? options_.patient_delay
                                  : options_.restart_delay);
}

void ProcessPool::SpawnLater(WorkerId id, absl::Duration delay) {
  loop_.After(delay, [this, id] {
    const Worker& worker = At(id);
    if (stopping_ || !worker.info.taken_out.empty() ||
        worker.process != nullptr || worker.awaited) {
      return;
    }
    const absl::Status status = Spawn(id);
    if (status.ok()) return;
    RH_LOG(kError) << "worker " << Number(id) << ": " << status;
    if (IsShortage(status)) return SpawnLater(id, options_.restart_delay);
    ++At(id).fruitless_deaths;
    Restart(id, std::string(status.message()));
  });
}

}  // namespace roundhouse
