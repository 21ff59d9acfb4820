#include "server/workers/process_pool.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire/exit_status.h"
#include "server/workers/dispatch_priority.h"
#include "server/workers/worker_arguments.h"

namespace roundhouse {
namespace {

constexpr int kChecksPerLimit = 6;
constexpr absl::Duration kExitGrace = absl::Seconds(1);
// What starting a worker opens, with its nursery's start.
constexpr int kSpawnDescriptors = 12;

// A command that a worker finished: it is not dying at its start.
bool IsResult(const wire::Body& body) {
  return std::holds_alternative<wire::SlotDone>(body) ||
         std::holds_alternative<wire::SampleDone>(body) ||
         std::holds_alternative<wire::HostOpDone>(body) ||
         std::holds_alternative<wire::FileOpDone>(body);
}

// Whether what Spawn says passes: descriptors, processes or memory have run
// out, or the nursery has much to do.  No fault of the worker's.
bool IsShortage(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

}  // namespace

ProcessPool::ProcessPool(EventLoop& loop, HostArena& arena,
                         const ProcessPoolOptions& options)
    : WorkerPool(options.device_count, options.gpus),
      loop_(loop),
      arena_(arena),
      options_(options) {}

absl::StatusOr<std::unique_ptr<ProcessPool>> ProcessPool::Create(
    EventLoop& loop, HostArena& arena, const ProcessPoolOptions& options) {
  if (options.device_count + 2 > wire::kMaxWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("devices: ", options.device_count, " devices; the limit ",
                     "is ", wire::kMaxWorkers - 2));
  }
  ROUNDHOUSE_CHECK(options.gpus.empty() ||
                   static_cast<int>(options.gpus.size()) ==
                       options.device_count);
  auto pool =
      std::unique_ptr<ProcessPool>(new ProcessPool(loop, arena, options));
  pool->workers_.resize(options.device_count + 2);
  for (Worker& worker : pool->workers_) {
    worker.info.role = WorkerRole::kDevice;
  }
  pool->At(pool->HostWorker()).info.role = WorkerRole::kHost;
  pool->At(pool->FilesWorker()).info.role = WorkerRole::kFiles;
  return pool;
}

ProcessPool::~ProcessPool() {
  loop_.CancelTimer(silence_timer_);
  for (Worker& worker : workers_) {
    if (worker.channel != nullptr) loop_.Unwatch(worker.channel->fd());
  }
}

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

uint64_t ProcessPool::Send(WorkerId id, wire::Body body,
                           ReplyHandler* handler) {
  Worker& worker = At(id);
  if (!worker.info.up) return 0;
  const uint64_t attempt = worker.next_attempt++;
  if (handler != nullptr) worker.replies.Expect(attempt, handler);
  worker.work.NoteSent(attempt, body);
  worker.unsent.push_back({attempt, std::move(body)});
  if (worker.unsent.size() > kMaxUnsentMessages) {
    KillFor(worker, "it does not take its messages");
  }
  if (worker.unsent.size() == 1) FlushUnsent(id);
  return attempt;
}

void ProcessPool::Forget(const ReplyHandler* handler) {
  for (Worker& worker : workers_) worker.replies.Forget(handler);
}

void ProcessPool::FlushUnsent(WorkerId id) {
  Worker& worker = At(id);
  while (!worker.unsent.empty()) {
    const absl::Status status = worker.channel->TrySend(worker.unsent.front());
    if (status.code() == absl::StatusCode::kResourceExhausted) {
      worker.blocked = true;
      loop_.SetEvents(worker.channel->fd(), EPOLLIN | EPOLLOUT);
      return;
    }
    if (!status.ok()) {
      // Dying: OnExit follows and reports what was lost.
      worker.unsent.clear();
      break;
    }
    worker.unsent.pop_front();
  }
  // Each call into the kernel would be latency of the commands that follow.
  if (std::exchange(worker.blocked, false)) {
    loop_.SetEvents(worker.channel->fd(), EPOLLIN);
  }
}

void ProcessPool::Withdraw(DeviceId device, uint64_t attempt) {
  const WorkerId id = DeviceWorker(device);
  if (!up(id)) return;
  wire::Doorbell& bell = arena_.arena().doorbells().bell[Number(id)];
  bell.cancel[attempt % wire::kMaxDispatchedSlots].store(attempt);
  wire::Ring(bell);
  Send(id, wire::Withdraw{attempt});
}

// Its first thread is the one that takes messages; the host worker's computes.
void ProcessPool::GoBeforeCompute(WorkerId id) {
  if (info(id).role != WorkerRole::kDevice) return;
  const absl::Status put =
      PutBeforeCompute(info(id).pid, DispatchThread::kWorker);
  if (put.ok()) return;
  RH_LOG(kWarning) << "device worker " << Number(id) << ": " << put.message();
}

void ProcessPool::Deliver(WorkerId id, const wire::Message& message) {
  Worker& worker = At(id);
  worker.last_heard_ns = loop_.clock().MonotonicNs();
  if (const auto* beat = std::get_if<wire::Heartbeat>(&message.body)) {
    worker.info.pinned_bytes = beat->pinned_bytes;
    return;
  }
  if (const auto* hello = std::get_if<wire::Hello>(&message.body)) {
    worker.info.h2d_bytes_per_second = hello->h2d_bytes_per_second;
    worker.info.d2h_bytes_per_second = hello->d2h_bytes_per_second;
    worker.info.up = worker.was_up = true;
    worker.patient = false;
    if (options_.before_compute && !worker.ended) GoBeforeCompute(id);
    if (!stopping_) listener_->OnWorkerUp(id);
    return;
  }
  worker.work.NoteHeard(worker.last_heard_ns, message);
  if (IsResult(message.body)) worker.fruitless_deaths = 0;
  if (stopping_) return;
  listener_->OnMessage(id, message);
  worker.replies.Deliver(id, message);
}

void ProcessPool::Suspect(DeviceId device, const std::string& why) {
  Worker& worker = At(DeviceWorker(device));
  if (worker.info.up) worker.work.Suspect(loop_.clock().MonotonicNs(), why);
}

void ProcessPool::ReadChannel(WorkerId id) {
  Worker& worker = At(id);
  // A bounded batch, so that one chatty worker does not starve the others.
  for (int i = 0; i < 64 && worker.channel != nullptr; ++i) {
    auto message = worker.channel->TryReceive();
    if (!message.ok()) {
      CloseDown(id, message.status());
      return;
    }
    if (!message->has_value()) return;
    Deliver(id, **message);
  }
}

// It speaks nonsense or has closed its end: it must not go on.  One that is
// ending on its own may say how.
void ProcessPool::CloseDown(WorkerId id, const absl::Status& why) {
  Worker& worker = At(id);
  if (why.code() != absl::StatusCode::kUnavailable) {
    KillFor(worker, std::string(why.message()));
    loop_.SetEvents(worker.channel->fd(), 0);
    return;
  }
  loop_.Unwatch(worker.channel->fd());
  KillLater(id);
}

void ProcessPool::KillLater(WorkerId id) {
  loop_.After(kExitGrace, [this, id, start = At(id).info.starts] {
    Worker& late = At(id);
    if (late.process != nullptr && late.info.starts == start) {
      late.process->Kill(SIGKILL);
    }
  });
}

void ProcessPool::Drain(WorkerId id) {
  while (true) {
    auto message = At(id).channel->TryReceive();
    if (!message.ok() || !message->has_value()) return;
    Deliver(id, **message);
  }
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
  if (worker.patient) return SpawnLater(id, options_.patient_delay);
  const bool device = worker.info.role == WorkerRole::kDevice;
  if (device && worker.fruitless_deaths >= kMaxFruitlessDeaths) {
    worker.info.lost = true;
    listener_->OnDeviceLost(static_cast<DeviceId>(Number(id)), why);
    return;
  }
  const bool at_once = worker.fruitless_deaths <= 1;
  SpawnLater(id, at_once ? absl::ZeroDuration() : options_.restart_delay);
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

// Once: one whose driver hangs in the kernel may outlive it.
void ProcessPool::KillFor(Worker& worker, const std::string& reason) {
  if (!worker.killed_for.empty()) return;
  RH_LOG(kError) << "worker process " << worker.info.pid
                 << " is killed: " << reason;
  worker.killed_for = reason;
  worker.process->Kill(SIGKILL);
}

absl::Duration ProcessPool::LimitOf(const Worker& worker) const {
  return worker.info.up ? options_.heartbeat_limit : options_.start_limit;
}

void ProcessPool::CheckSilence() {
  const int64_t now_ns = loop_.clock().MonotonicNs();
  const auto is_silent = [this, now_ns](const Worker& worker) {
    return worker.process != nullptr &&
           now_ns - worker.last_heard_ns >
               absl::ToInt64Nanoseconds(LimitOf(worker));
  };
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const std::string stuck = worker.work.Stuck(now_ns, options_.suspect_limit);
    if (!stuck.empty()) KillFor(worker, stuck);
    if (!is_silent(worker)) continue;
    // Was it this thread that did not listen?
    ReadChannel(static_cast<WorkerId>(i));
    if (!is_silent(worker)) continue;
    const std::string limit = absl::FormatDuration(LimitOf(worker));
    KillFor(worker, worker.info.up
                        ? absl::StrCat("it has been silent for ", limit)
                        : absl::StrCat("it did not start within ", limit));
  }
  CheckSilenceLater();
}

void ProcessPool::CheckSilenceLater() {
  silence_timer_ =
      loop_.After(std::min({options_.heartbeat_limit, options_.start_limit,
                            options_.suspect_limit}) /
                      kChecksPerLimit,
                  [this] { CheckSilence(); });
}

void ProcessPool::AskToStop(WorkerId id) {
  Send(id, wire::Stop{});
  // A host worker that sleeps on words looks at its socket then.
  wire::Ring(arena_.arena().doorbells().bell[Number(id)]);
}

void ProcessPool::Stop(absl::Duration grace, std::function<void()> stopped) {
  stopping_ = true;
  stopped_ = std::move(stopped);
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.process == nullptr) continue;
    if (worker.info.up) {
      AskToStop(static_cast<WorkerId>(i));
    } else {
      worker.process->Kill(SIGKILL);
    }
  }
  TellIfStopped();
  loop_.After(grace, [this] {
    for (Worker& worker : workers_) {
      if (worker.process != nullptr) worker.process->Kill(SIGKILL);
    }
  });
}

}  // namespace roundhouse
