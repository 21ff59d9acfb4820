#include "worker/files/files_worker.h"

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "base/kill_point.h"
#include "base/status.h"
#include "worker/files/merge.h"
#include "worker/files/tensor_io.h"
#include "worker/host/inbox.h"

namespace roundhouse::worker {
namespace {

// Does `work`, which returns its bytes, and answers for `operation`.
absl::Status Answer(Inbox& inbox, uint64_t attempt, uint64_t operation,
                    const std::function<absl::StatusOr<uint64_t>()>& work) {
  uint64_t bytes = 0;
  // On a thread of its own: a disk may take seconds for one call, and killing
  // the process would not hurry it.
  const absl::Status done = inbox.RunBeating([&]() -> absl::Status {
    ASSIGN_OR_RETURN(bytes, work());
    return absl::OkStatus();
  });
  if (!done.ok())
    return inbox.Answer(attempt, wire::FailedWith(operation, done));
  KillPoint("files.done.before");
  RETURN_IF_ERROR(inbox.Answer(attempt, wire::FileOpDone{operation, bytes}));
  KillPoint("files.done.after");
  return absl::OkStatus();
}

}  // namespace

absl::Status RunFilesWorker(const WorkerContext& context) {
  std::signal(SIGXFSZ, SIG_IGN);
  Inbox inbox(context.channel);
  return inbox.Serve([&](const wire::Message& message) -> absl::Status {
    if (const auto* op = std::get_if<wire::FileOp>(&message.body)) {
      return Answer(inbox, message.attempt, op->operation,
                    [&] { return DoFileOp(context.arena, *op); });
    }
    if (const auto* rows = std::get_if<wire::MergeRows>(&message.body)) {
      return Answer(inbox, message.attempt, rows->operation,
                    [&] { return DoMerge(*rows); });
    }
    return inbox.Answer(
        message.attempt,
        wire::FailedWith(0, absl::InvalidArgumentError(
                                "not a command of the files worker")));
  });
}

}  // namespace roundhouse::worker
