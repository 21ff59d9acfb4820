// The server's streams, made whole: a stream that breaks is opened again where
// it broke, with backoff, until RetryPolicy gives up.
//
// Blocking; run on the caller's thread; end on Ctrl-C with CANCELLED.
#ifndef ROUNDHOUSE_CLIENT_STREAMS_H_
#define ROUNDHOUSE_CLIENT_STREAMS_H_

#include <grpcpp/support/status.h>

#include <functional>
#include <string>

#include "client/environment.h"
#include "proto/roundhouse/v1/fine_tuning_job.grpc.pb.h"

namespace roundhouse::client {

struct StreamOptions {
  RetryPolicy retry;
  Interrupt* interrupt = nullptr;  // borrowed
  // Before the wait for another try; `moved`: the stream that broke had brought
  // something new.
  std::function<void(const grpc::Status&, bool moved)> on_broken =
      [](const auto&, bool) {};
};

// Every message in order, without gaps in the changes: each new stream starts
// after the last revision seen, or with the present states when the server no
// longer has what follows it.  Ends OK when `on_message` returns false; the
// server ending the stream is a break.  Errors that another try can't mend
// (NOT_FOUND, PERMISSION_DENIED ...) are returned at once.
grpc::Status WatchJobs(
    v1::FineTuningJobService::StubInterface* stub,
    v1::WatchFineTuningJobsRequest request, const StreamOptions& options,
    const std::function<bool(const v1::WatchFineTuningJobsResponse&)>&
        on_message);

// The log's bytes in order, each once.  Ends OK with the server's stream.  Only
// a log read from its beginning (tail_lines 0) can go on after a break.
grpc::Status ReadLogs(v1::FineTuningJobService::StubInterface* stub,
                      const v1::StreamFineTuningJobLogsRequest& request,
                      const StreamOptions& options,
                      const std::function<void(const std::string&)>& on_bytes);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_STREAMS_H_
