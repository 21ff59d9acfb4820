#include "client/streams.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "client/error_text.h"
#include "client/interrupt.h"

namespace roundhouse::client {
namespace {

// How one stream ended.
struct StreamEnd {
  grpc::Status status;
  // The callback wanted no more.
  bool enough = false;
  // It brought something new.
  bool moved = false;
};

grpc::Status InterruptedStatus() {
  return grpc::Status(grpc::StatusCode::CANCELLED, "interrupted");
}

// OK: the server ended a stream that should have gone on.
bool CanTryAgain(const grpc::Status& status) {
  return status.ok() || BrokeOnTheWay(status) ||
         status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

grpc::Status GaveUp(const grpc::Status& status) {
  return status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                    "the server keeps ending the stream")
                     : status;
}

// Opens streams until one ends for good.
grpc::Status Repeat(const StreamOptions& options,
                    const std::function<StreamEnd()>& run_once,
                    const std::function<bool(const StreamEnd&)>& is_final) {
  int failures = 0;
  for (;;) {
    const StreamEnd end = run_once();
    if (end.enough) {
      return grpc::Status::OK;
    }
    if (options.interrupt->requested()) {
      return InterruptedStatus();
    }
    if (is_final(end)) {
      return end.status;
    }
    failures = end.moved ? 1 : failures + 1;
    if (!CanTryAgain(end.status) || failures >= options.retry.attempts) {
      return GaveUp(end.status);
    }
    options.on_broken(end.status, end.moved);
    if (!options.interrupt->Wait(options.retry.DelayAfter(failures))) {
      return InterruptedStatus();
    }
  }
}

}  // namespace

grpc::Status WatchJobs(
    v1::FineTuningJobService::StubInterface* stub,
    v1::WatchFineTuningJobsRequest request, const StreamOptions& options,
    const std::function<bool(const v1::WatchFineTuningJobsResponse&)>&
        on_message) {
  const auto run_once = [&] {
    StreamEnd end;
    grpc::ClientContext context;
    Interrupt::Scope scope(options.interrupt, &context);
    const auto reader = stub->WatchFineTuningJobs(&context, request);
    v1::WatchFineTuningJobsResponse message;
    while (!end.enough && reader->Read(&message)) {
      end.moved = true;
      request.set_from_revision(
          std::max(request.from_revision(), message.revision()));
      end.enough = !on_message(message);
    }
    if (end.enough) {
      context.TryCancel();
    }
    end.status = reader->Finish();
    if (end.status.error_code() == grpc::StatusCode::OUT_OF_RANGE) {
      request.set_from_revision(0);
    }
    return end;
  };
  return Repeat(options, run_once, [](const StreamEnd&) { return false; });
}

grpc::Status ReadLogs(v1::FineTuningJobService::StubInterface* stub,
                      const v1::StreamFineTuningJobLogsRequest& request,
                      const StreamOptions& options,
                      const std::function<void(const std::string&)>& on_bytes) {
  uint64_t shown_bytes = 0;
  const auto run_once = [&] {
    StreamEnd end;
    grpc::ClientContext context;
    Interrupt::Scope scope(options.interrupt, &context);
    const auto reader = stub->StreamFineTuningJobLogs(&context, request);
    uint64_t to_skip = shown_bytes;
    v1::StreamFineTuningJobLogsResponse message;
    while (reader->Read(&message)) {
      const uint64_t skipped =
          std::min<uint64_t>(to_skip, message.data().size());
      to_skip -= skipped;
      if (skipped == message.data().size()) {
        continue;
      }
      end.moved = true;
      shown_bytes += message.data().size() - skipped;
      on_bytes(message.data().substr(skipped));
    }
    end.status = reader->Finish();
    return end;
  };
  return Repeat(options, run_once, [&](const StreamEnd& end) {
    return end.status.ok() || (request.tail_lines() > 0 && shown_bytes > 0);
  });
}

}  // namespace roundhouse::client
