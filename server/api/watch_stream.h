// WatchFineTuningJobs: changes from the job store in revision order, pulled in
// batches as the reader takes them, with progress and bookmarks in between.
#ifndef ROUNDHOUSE_SERVER_API_WATCH_STREAM_H_
#define ROUNDHOUSE_SERVER_API_WATCH_STREAM_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "server/api/convert.h"
#include "server/calls/stream_pump.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr int kWatchBatch = 64;
inline constexpr absl::Duration kBookmarkInterval = absl::Seconds(10);
// Progress of one job goes out at most this often.
inline constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

class WatchStream final : public PumpedWriter<v1::WatchFineTuningJobsResponse> {
 public:
  // `store` outlives the stream.  The job that `entered` has is watched, or
  // all.  Of jobs that it does not see whole, outlines are sent.
  WatchStream(StreamPump* pump, grpc::CallbackServerContext* context,
              const JobStore* store, WatchQuery query, Entered entered);

 protected:
  absl::StatusOr<NextMessage> Next(
      absl::Time now, v1::WatchFineTuningJobsResponse* out) override;

 private:
  bool over() const { return removed_ || (final_seen_ && query_.until_final); }
  using Message = v1::WatchFineTuningJobsResponse;

  absl::Status Begin(absl::Time now);
  absl::Status QueueSnapshot();
  absl::Status Refill();
  absl::StatusOr<bool> NextProgress(absl::Time now, Message* out);
  // The job that is watched; "": all.
  std::string id() const {
    return entered_.job.has_value() ? entered_.job->id : "";
  }
  v1::FineTuningJob Shown(const JobRecord& job) const;
  void Queue(const JobRecord& job, Message::Kind kind, int64_t revision);
  void QueueBookmark();

  StreamPump* const pump_;
  const JobStore* const store_;
  const WatchQuery query_;
  const Entered entered_;
  bool begun_ = false;
  uint64_t seen_changes_ = 0;  // of the pump's, when the store was last asked
  bool final_seen_ = false;
  bool removed_ = false;       // the job that is watched
  int64_t revision_ = 0;       // Everything up to here is sent or queued.
  std::deque<Message> queue_;  // At most a batch, or the first snapshot.
  std::map<std::string, uint64_t> sent_progress_;
  absl::Time next_progress_ = absl::InfinitePast();
  absl::Time next_bookmark_ = absl::InfinitePast();
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_WATCH_STREAM_H_
