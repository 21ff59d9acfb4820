#include "server/workers/process_pool.h"

#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/workers/dispatch_priority.h"

namespace roundhouse {
namespace {

constexpr int kChecksPerLimit = 6;
constexpr absl::Duration kExitGrace = absl::Seconds(1);

// A command that a worker finished: it is not dying at its start.
bool IsResult(const wire::Body& body) {
  return std::holds_alternative<wire::SlotDone>(body) ||
         std::holds_alternative<wire::SampleDone>(body) ||
         std::holds_alternative<wire::HostOpDone>(body) ||
         std::holds_alternative<wire::FileOpDone>(body);
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
