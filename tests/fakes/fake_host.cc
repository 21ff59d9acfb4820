#include "tests/fakes/fake_host.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/kill_point.h"
#include "base/status.h"
#include "base/wire/arena.h"
#include "base/wire/words.h"
#include "worker/host/inbox.h"

namespace roundhouse::fakes {
namespace {

using worker::JobTables;

class FakeHost {
 public:
  FakeHost(const worker::WorkerContext& context, const FakeHostOptions& options,
           Clock& clock)
      : arena_(context.arena),
        bell_(context.arena.doorbells().bell[context.index]),
        options_(options),
        clock_(clock),
        memory_(clock),
        inbox_(context.channel) {}

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
  absl::Status Do(const wire::HostOp& op);
  absl::Status Gather(const wire::HostOp& op);
  // CANCELLED: Stop arrived first.
  absl::Status Await(const wire::WordRef& ref);
  void Raise(const wire::WordRef& ref);
  void Move(uint64_t bytes, int64_t delay_ns = 0);

  wire::Arena& arena_;
  wire::Doorbell& bell_;
  const FakeHostOptions options_;
  Clock& clock_;
  Resource memory_;
  worker::Inbox inbox_;
  std::map<uint64_t, std::shared_ptr<const JobTables>> jobs_;
};

absl::Status FakeHost::Run() {
  return inbox_.Serve([this](const wire::Message& message) {
    return std::visit(
        [&](const auto& body) { return Handle(message.attempt, body); },
        message.body);
  });
}

absl::Status FakeHost::Handle(uint64_t attempt,
                              const wire::ConfigureJob& command) {
  auto tables = worker::ReadJobTables(arena_, command.layout_offset);
  if (!tables.ok()) return Fail(attempt, command.job, tables.status());
  jobs_[command.job] = *std::move(tables);
  return inbox_.Answer(attempt, wire::JobConfigured{command.job});
}

absl::Status FakeHost::Handle(uint64_t, const wire::ReleaseJob& command) {
  jobs_.erase(command.job);
  return absl::OkStatus();
}

absl::Status FakeHost::Handle(uint64_t attempt, const wire::HostOp& op) {
  wire::HostOpDone done;
  done.operation = op.operation;
  done.norm_squared = 1;
  done.started_ns = clock_.Now();
  const absl::Status status = Do(op);
  // Run finds the Stop next.
  if (absl::IsCancelled(status)) return absl::OkStatus();
  if (!status.ok()) return Fail(attempt, op.operation, status);
  done.ended_ns = clock_.Now();
  KillPoint("host.done.before");
  return inbox_.Answer(attempt, done);
}

template <typename Other>
absl::Status FakeHost::Handle(uint64_t attempt, const Other&) {
  return Fail(attempt, 0,
              absl::InvalidArgumentError("not a command of the host worker"));
}

absl::Status FakeHost::Do(const wire::HostOp& op) {
  const auto job = jobs_.find(op.job);
  if (job == jobs_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", op.job, " is not configured"));
  }
  const JobTables& tables = *job->second;
  if (op.unit >= tables.units.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unit ", op.unit, " of job ", op.job, "'s ", tables.units.size()));
  }
  switch (op.kind) {
    case HostOpKind::kGather:
      return Gather(op);
    case HostOpKind::kReduce:
      Move(ReduceBytes(op, tables));
      return absl::OkStatus();
    case HostOpKind::kUpdate:
      Move(UpdateBytes(op, tables), options_.update_delay_ns);
      if (op.version.offset != 0) Raise(op.version);
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError("unknown kind of host operation");
}

absl::Status FakeHost::Gather(const wire::HostOp& op) {
  RETURN_IF_ERROR(Await(op.version));
  if (op.begun.offset != 0) Raise(op.begun);
  Move(0, options_.gather_delay_ns);
  for (size_t i = 0; i < op.micro_batches.size(); ++i) {
    const wire::HostMicroBatch& micro_batch = op.micro_batches[i];
    if (micro_batch.word.offset == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("micro-batch ", i, ": no word to raise"));
    }
    Move(GatherBytes(micro_batch));
    Raise(micro_batch.word);
  }
  return absl::OkStatus();
}

absl::Status FakeHost::Await(const wire::WordRef& ref) {
  if (ref.offset == 0) return absl::OkStatus();
  const wire::Word& word = arena_.WordAt(ref.offset);
  while (!wire::Reached(word, ref.value)) {
    ASSIGN_OR_RETURN(const bool stop, inbox_.StopArrived());
    if (stop) return absl::CancelledError("stopped");
    inbox_.Beat();
    wire::WaitForRing(bell_, absl::Milliseconds(50),
                      [&] { return wire::Reached(word, ref.value); });
  }
  return absl::OkStatus();
}

// In a replay the word may be there already.
void FakeHost::Raise(const wire::WordRef& ref) {
  wire::Word& word = arena_.WordAt(ref.offset);
  if (wire::Reached(word, ref.value)) return;
  wire::Raise(word, ref.value, arena_.doorbells());
}

void FakeHost::Move(uint64_t bytes, int64_t delay_ns) {
  if (options_.bytes_per_second > 0) {
    delay_ns += std::llround(static_cast<double>(bytes) * 1e9 /
                             options_.bytes_per_second);
  }
  if (delay_ns > 0) memory_.Asked(0, delay_ns);
  inbox_.Beat();
}

}  // namespace

uint64_t GatherBytes(const wire::HostMicroBatch& micro_batch) {
  return 2 * micro_batch.data.bytes;
}

uint64_t ContributedBytes(const wire::HostOp& op) {
  uint64_t bytes = 0;
  for (const wire::HostContribution& given : op.contributions) {
    bytes += given.buffer.bytes;
  }
  return bytes;
}

uint64_t ReduceBytes(const wire::HostOp& op, const JobTables& tables) {
  const uint64_t sum = tables.units[op.unit].element_count * sizeof(float);
  uint64_t rows = 0;
  for (const wire::HostMicroBatch& given : op.micro_batches) {
    rows += given.data.bytes;
  }
  uint64_t touched = sum;
  if (op.keep_partials) {
    touched =
        std::min(sum, rows / tables.element_bytes(op.unit) * sizeof(float));
  }
  return ContributedBytes(op) + rows +
         (op.sum_write == wire::SumWrite::kAdd ? 2 : 1) * touched;
}

uint64_t UpdateBytes(const wire::HostOp& op, const JobTables& tables) {
  // In one pass it reads what was contributed in the sum's place.
  const uint64_t gradient = op.contributions.empty() ? sizeof(float) : 0;
  return ContributedBytes(op) +
         tables.units[op.unit].element_count *
             (gradient + 24 + tables.element_bytes(op.unit));
}

absl::Status RunFakeHostWorker(const worker::WorkerContext& context,
                               const FakeHostOptions& options, Clock& clock) {
  return FakeHost(context, options, clock).Run();
}

}  // namespace roundhouse::fakes
