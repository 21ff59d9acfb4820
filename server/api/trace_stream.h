// TraceFineTuningJob: how far the recording is, then the trace in parts.
#ifndef ROUNDHOUSE_SERVER_API_TRACE_STREAM_H_
#define ROUNDHOUSE_SERVER_API_TRACE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "server/calls/stream_pump.h"
#include "server/observe/trace.h"

namespace roundhouse {

// In one message: some 1.5 MB, a message has at most 4 MiB.
inline constexpr size_t kMaxPartIntervals = 20'000;

// Whether whoever asks sees all of a job, by its id.
using ShowsJob = std::function<bool(const std::string& id)>;

// A trace as messages.  Of a job that is not shown it has when it computed and
// copied, and not what.  Thread-compatible.
class TraceParts {
 public:
  TraceParts(std::shared_ptr<const Trace> trace, const ShowsJob& shows);

  // The first one has all but intervals.  False: there are no more.
  bool Next(v1::TraceFineTuningJobResponse* out);

 private:
  void PutHead(v1::TraceFineTuningJobResponse* out) const;
  void PutNames(v1::Timeline* out) const;
  void Put(const TraceInterval& interval, v1::TimelineInterval* out) const;
  int Resource(const TraceInterval& interval) const;

  const std::shared_ptr<const Trace> trace_;
  int64_t origin_ns_;      // the timeline's start
  bool backfill_ = false;  // some interval is on that track
  std::map<absl::string_view, int> kinds_;
  std::vector<bool> shown_;  // of each job
  bool begun_ = false;
  size_t next_ = 0;  // interval
};

// Dropping it ends the recording.
class TraceStream final : public PumpedWriter<v1::TraceFineTuningJobResponse> {
 public:
  TraceStream(StreamPump* pump, grpc::CallbackServerContext* context,
              std::shared_ptr<TraceTask> task, ShowsJob shows);
  ~TraceStream() override;

 protected:
  absl::StatusOr<NextMessage> Next(
      absl::Time now, v1::TraceFineTuningJobResponse* out) override;

 private:
  const std::shared_ptr<TraceTask> task_;
  const ShowsJob shows_;
  int64_t sent_steps_ = -1;
  std::unique_ptr<TraceParts> parts_;  // null: it is recorded
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_TRACE_STREAM_H_
