#include "worker/host/host_worker.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/host/chunk_pool.h"
#include "worker/host/gather.h"
#include "worker/host/inbox.h"
#include "worker/host/job_view.h"
#include "worker/host/journal.h"
#include "worker/host/reduce.h"
#include "worker/host/torch_threads.h"
#include "worker/host/update.h"

namespace roundhouse::worker {
namespace {

class HostWorker {
 public:
  explicit HostWorker(const WorkerContext& context)
      : arena_(context.arena),
        bell_(context.arena.doorbells().bell[context.index]),
        inbox_(context.channel),
        pool_(context.threads, UseOneTorchThread) {}

  absl::Status Run();

 private:
  absl::Status Handle(uint64_t attempt, const wire::ConfigureJob& command);
  absl::Status Handle(uint64_t attempt, const wire::ReleaseJob& command);
  absl::Status Handle(uint64_t attempt, const wire::HostOp& op);
  template <typename Other>
  absl::Status Handle(uint64_t attempt, const Other&);

  absl::Status Fail(uint64_t attempt, uint64_t id, const absl::Status& why) {
    return inbox_.Answer(attempt, wire::FailedWith(id, why));
  }
  // The operation's squared norm.
  absl::StatusOr<double> Do(const wire::HostOp& op);
  absl::StatusOr<double> DoReduce(const JobView& job, const wire::HostOp& op);
  absl::Status DoGather(const JobView& job, const wire::HostOp& op);
  absl::StatusOr<double> DoUpdate(const JobView& job, const wire::HostOp& op);
  // False: Stop arrived first.
  absl::StatusOr<bool> WaitFor(const wire::WordRef& ref);
  void RaiseOnce(const wire::WordRef& ref);

  wire::Arena& arena_;
  wire::Doorbell& bell_;
  Inbox inbox_;
  ChunkPool pool_;
  std::map<uint64_t, JobView> jobs_;
  const std::function<void()> beat_ = [this] { inbox_.Beat(); };
};

absl::Status HostWorker::Run() {
  return inbox_.Serve([this](const wire::Message& message) {
    return std::visit(
        [&](const auto& body) { return Handle(message.attempt, body); },
        message.body);
  });
}

absl::Status HostWorker::Handle(uint64_t attempt,
                                const wire::ConfigureJob& command) {
  absl::StatusOr<JobView> job = JobView::Create(arena_, command.layout_offset);
  if (job.ok() && job->job() != command.job) {
    job = absl::InvalidArgumentError(absl::StrCat(
        "the layout of job ", command.job, " says job ", job->job()));
  }
  if (job.ok() && jobs_.size() >= kMaxHostJobs &&
      jobs_.count(command.job) == 0) {
    job = absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxHostJobs, " jobs"));
  }
  if (!job.ok()) return Fail(attempt, command.job, job.status());
  jobs_.insert_or_assign(command.job, *std::move(job));
  return inbox_.Answer(attempt, wire::JobConfigured{command.job});
}

absl::Status HostWorker::Handle(uint64_t, const wire::ReleaseJob& command) {
  jobs_.erase(command.job);
  return absl::OkStatus();
}

absl::Status HostWorker::Handle(uint64_t attempt, const wire::HostOp& op) {
  wire::HostOpDone done;
  done.operation = op.operation;
  done.started_ns = MonotonicNs();
  const absl::StatusOr<double> norm_squared = Do(op);
  // A Stop while it waited: Run finds the Stop next.
  if (absl::IsCancelled(norm_squared.status())) return absl::OkStatus();
  if (!norm_squared.ok()) {
    return Fail(attempt, op.operation, norm_squared.status());
  }
  done.norm_squared = *norm_squared;
  done.ended_ns = MonotonicNs();
  KillPoint("host.done.before");
  RETURN_IF_ERROR(inbox_.Answer(attempt, done));
  KillPoint("host.done.after");
  return absl::OkStatus();
}

template <typename Other>
absl::Status HostWorker::Handle(uint64_t attempt, const Other&) {
  return Fail(attempt, 0,
              absl::InvalidArgumentError("not a command of the host worker"));
}

absl::StatusOr<double> HostWorker::Do(const wire::HostOp& op) {
  const auto found = jobs_.find(op.job);
  if (found == jobs_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", op.job, " is not configured"));
  }
  const JobView& job = found->second;
  if (op.unit >= job.unit_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unit ", op.unit, " of job ", op.job, "'s ", job.unit_count()));
  }
  switch (op.kind) {
    case HostOpKind::kReduce:
      return DoReduce(job, op);
    case HostOpKind::kGather:
      RETURN_IF_ERROR(DoGather(job, op));
      return 0.0;
    case HostOpKind::kUpdate:
      return DoUpdate(job, op);
  }
  return absl::InvalidArgumentError("unknown kind of host operation");
}

absl::StatusOr<double> HostWorker::DoReduce(const JobView& job,
                                            const wire::HostOp& op) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Reduce> reduce,
                   Reduce::Make(arena_, job, op, pool_.threads()));
  RETURN_IF_ERROR(
      RunJournalled(job, op.unit, op.operation, *reduce, pool_, beat_));
  return reduce->NormSquared();
}

absl::Status HostWorker::DoGather(const JobView& job, const wire::HostOp& op) {
  ASSIGN_OR_RETURN(const bool reached, WaitFor(op.version));
  if (!reached) return absl::CancelledError("stopped");
  RaiseOnce(op.begun);
  return Gather(arena_, job, op, pool_, beat_);
}

absl::StatusOr<double> HostWorker::DoUpdate(const JobView& job,
                                            const wire::HostOp& op) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Update> update,
                   Update::Make(arena_, job, op, pool_.threads()));
  RETURN_IF_ERROR(
      RunJournalled(job, op.unit, op.operation, *update, pool_, beat_));
  if (op.version.offset != 0) {
    RaiseOnce(op.version);
    KillPoint("host.unit.published");
  }
  return update->NormSquared();
}

// In a replay it may be raised already.
void HostWorker::RaiseOnce(const wire::WordRef& ref) {
  if (ref.offset == 0) return;
  wire::Word& word = arena_.WordAt(ref.offset);
  if (wire::Reached(word, ref.value)) return;
  wire::Raise(word, ref.value, arena_.doorbells());
}

absl::StatusOr<bool> HostWorker::WaitFor(const wire::WordRef& ref) {
  if (ref.offset == 0) return true;
  const wire::Word& word = arena_.WordAt(ref.offset);
  while (!wire::Reached(word, ref.value)) {
    ASSIGN_OR_RETURN(const bool stop, inbox_.StopArrived());
    if (stop) return false;
    inbox_.Beat();
    // Short enough to see a Stop or the daemon's end without a ring.
    wire::WaitForRing(bell_, absl::Milliseconds(50),
                      [&] { return wire::Reached(word, ref.value); });
  }
  return true;
}

}  // namespace

absl::Status RunHostWorker(const WorkerContext& context) {
  return HostWorker(context).Run();
}

}  // namespace roundhouse::worker
