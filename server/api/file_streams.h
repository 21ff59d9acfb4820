// StreamFineTuningJobLogs and StreamFineTuningJobMetrics: a job's files as they
// grow.  With follow a stream goes on until the job has ended and its file was
// read to the end, also while the job waits or is paused, and when another file
// takes the file's place, as metrics.jsonl's does each time the job starts.
#ifndef ROUNDHOUSE_SERVER_API_FILE_STREAMS_H_
#define ROUNDHOUSE_SERVER_API_FILE_STREAMS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "server/calls/stream_pump.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr size_t kLogChunkBytes = 64 << 10;
// tail_lines looks back this far at most.
inline constexpr int64_t kMaxTailBytes = 8 << 20;

// Reads a growing file.  It may not be there yet, and another one may take its
// place: that is read from its beginning when the first has no more.
// Thread-compatible.
class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}
  FileTail(const FileTail&) = delete;
  FileTail& operator=(const FileTail&) = delete;

  // The next bytes, at most `limit`; "" when there are none now.
  absl::StatusOr<std::string> Read(size_t limit);
  // How many files were begun.
  int files() const { return files_; }
  // Moves to `lines` lines before the present end.
  absl::Status SeekTail(int lines);

 private:
  absl::StatusOr<bool> Open();
  absl::StatusOr<std::string> ReadOpen(size_t limit);
  // Whether the path is another file's now.
  bool Replaced() const;

  const std::string path_;
  int files_ = 0;
  Descriptor file_;
  int64_t offset_ = 0;
};

// What a stream reads.
struct StreamedFile {
  const JobStore* store = nullptr;  // knows when the job ends
  std::string id;                   // of the job
  std::string path;
  bool follow = false;  // until the job ends, not until the file does
};

// What both streams share: when the file has no more.
class JobFileEnd {
 public:
  JobFileEnd(const StreamPump* pump, const StreamedFile& file)
      : pump_(pump), store_(file.store), id_(file.id), follow_(file.follow) {}
  // Call before reading; afterwards AtEnd() says what an empty read means.
  absl::Status BeforeRead();
  bool AtEnd() const { return ended_; }

 private:
  const StreamPump* const pump_;
  const JobStore* const store_;
  const std::string id_;
  const bool follow_;
  uint64_t seen_changes_ = 0;  // of the pump's, when the store was last asked
  bool ended_ = false;
};

class LogStream final
    : public PumpedWriter<v1::StreamFineTuningJobLogsResponse> {
 public:
  LogStream(StreamPump* pump, grpc::CallbackServerContext* context,
            const StreamedFile& file, int tail_lines);

 protected:
  absl::StatusOr<NextMessage> Next(
      absl::Time now, v1::StreamFineTuningJobLogsResponse* out) override;

 private:
  JobFileEnd end_;
  FileTail file_;
  int tail_lines_;
};

class MetricsStream final : public PumpedWriter<v1::StepMetrics> {
 public:
  MetricsStream(StreamPump* pump, grpc::CallbackServerContext* context,
                const StreamedFile& file, int64_t after_step);

 protected:
  absl::StatusOr<NextMessage> Next(absl::Time now,
                                   v1::StepMetrics* out) override;

 private:
  // The last steps whose losses and evaluation were read.
  struct LastSteps {
    int64_t loss = -1;
    int64_t evaluation = -1;
  };

  bool TakeLine(v1::StepMetrics* out);

  JobFileEnd end_;
  FileTail file_;
  const int64_t after_step_;
  int begun_files_ = 0;  // of file_, whose lines are read
  LastSteps read_;
  LastSteps earlier_;   // in the files before this one
  std::string buffer_;  // At most a chunk and a line.
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_FILE_STREAMS_H_
