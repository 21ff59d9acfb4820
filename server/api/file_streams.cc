#include "server/api/file_streams.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/api/history/step_history.h"

namespace roundhouse {
namespace {

absl::Status ReadError(const std::string& path) {
  return absl::InternalError(
      absl::StrCat("reading ", path, ": ", strerror(errno)));
}

// Where the last `lines` lines of `text` begin.
size_t TailBegin(const std::string& text, int lines) {
  size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  for (int i = 0; i < lines; ++i) {
    if (at == 0) return 0;
    const size_t newline = text.rfind('\n', at - 1);
    if (newline == std::string::npos) return 0;
    at = newline;
  }
  return at + 1;
}

}  // namespace

absl::StatusOr<bool> FileTail::Open() {
  if (file_.get() >= 0) return true;
  file_ = Descriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file_.get() < 0) {
    if (errno == ENOENT) return false;
    return ReadError(path_);
  }
  offset_ = 0;
  ++files_;
  return true;
}

bool FileTail::Replaced() const {
  struct stat here, there;
  return fstat(file_.get(), &here) == 0 && lstat(path_.c_str(), &there) == 0 &&
         (here.st_ino != there.st_ino || here.st_dev != there.st_dev);
}

absl::StatusOr<std::string> FileTail::Read(size_t limit) {
  ASSIGN_OR_RETURN(const bool there, Open());
  if (!there) return std::string();
  ASSIGN_OR_RETURN(std::string data, ReadOpen(limit));
  if (!data.empty() || !Replaced()) return data;
  // What was written between the read and the replacement.
  ASSIGN_OR_RETURN(data, ReadOpen(limit));
  if (!data.empty()) return data;
  file_ = Descriptor();
  ASSIGN_OR_RETURN(const bool again, Open());
  return again ? ReadOpen(limit) : std::string();
}

absl::StatusOr<std::string> FileTail::ReadOpen(size_t limit) {
  std::string data(limit, '\0');
  const ssize_t n = pread(file_.get(), data.data(), limit, offset_);
  if (n < 0) return ReadError(path_);
  data.resize(n);
  offset_ += n;
  return data;
}

absl::Status FileTail::SeekTail(int lines) {
  ASSIGN_OR_RETURN(const bool there, Open());
  if (!there) return absl::OkStatus();
  struct stat info;
  if (fstat(file_.get(), &info) != 0) return ReadError(path_);
  offset_ = std::max<int64_t>(0, info.st_size - kMaxTailBytes);
  const int64_t begin = offset_;
  ASSIGN_OR_RETURN(const std::string text, ReadOpen(info.st_size - begin));
  offset_ = begin + static_cast<int64_t>(TailBegin(text, lines));
  return absl::OkStatus();
}

absl::Status JobFileEnd::BeforeRead() {
  const uint64_t changes = pump_->changes();
  if (ended_ || changes == seen_changes_) return absl::OkStatus();
  seen_changes_ = changes;
  const auto job = store_->Get(id_);
  // What is read of one that was deleted meanwhile ends here.
  ended_ = !follow_ || absl::IsNotFound(job.status());
  if (ended_) return absl::OkStatus();
  RETURN_IF_ERROR(job.status());
  ended_ = IsFinal(job->state);
  return absl::OkStatus();
}

LogStream::LogStream(StreamPump* pump, grpc::CallbackServerContext* context,
                     const StreamedFile& file, int tail_lines)
    : PumpedWriter(pump, context),
      end_(pump, file),
      file_(file.path),
      tail_lines_(tail_lines) {}

absl::StatusOr<NextMessage> LogStream::Next(
    absl::Time now, v1::StreamFineTuningJobLogsResponse* out) {
  RETURN_IF_ERROR(end_.BeforeRead());
  if (tail_lines_ > 0) {
    RETURN_IF_ERROR(file_.SeekTail(tail_lines_));
    tail_lines_ = 0;
  }
  ASSIGN_OR_RETURN(std::string data, file_.Read(kLogChunkBytes));
  if (data.empty()) {
    return end_.AtEnd() ? NextMessage::kEnd : NextMessage::kNothing;
  }
  out->set_data(std::move(data));
  return NextMessage::kSend;
}

MetricsStream::MetricsStream(StreamPump* pump,
                             grpc::CallbackServerContext* context,
                             const StreamedFile& file, int64_t after_step)
    : PumpedWriter(pump, context),
      end_(pump, file),
      file_(file.path),
      after_step_(after_step) {}

bool MetricsStream::TakeLine(v1::StepMetrics* out) {
  size_t newline = 0;
  while ((newline = buffer_.find('\n')) != std::string::npos) {
    const std::string line = buffer_.substr(0, newline);
    buffer_.erase(0, newline + 1);
    const auto metrics = ParseMetricsLine(line);
    if (!metrics.has_value()) {
      RH_LOG(kWarning) << "a line of step metrics can't be read: "
                       << line.substr(0, 100);
      continue;
    }
    const auto which =
        metrics->has_eval_loss() ? &LastSteps::evaluation : &LastSteps::loss;
    const int64_t step = metrics->step();
    read_.*which = std::max(read_.*which, step);
    if (step <= after_step_ || step <= earlier_.*which) continue;
    *out = *metrics;
    return true;
  }
  return false;
}

absl::StatusOr<NextMessage> MetricsStream::Next(absl::Time now,
                                                v1::StepMetrics* out) {
  if (TakeLine(out)) return NextMessage::kSend;
  RETURN_IF_ERROR(end_.BeforeRead());
  while (true) {
    ASSIGN_OR_RETURN(const std::string data, file_.Read(kLogChunkBytes));
    if (data.empty()) {
      return end_.AtEnd() ? NextMessage::kEnd : NextMessage::kNothing;
    }
    if (file_.files() != std::exchange(begun_files_, file_.files())) {
      buffer_.clear();
      earlier_ = read_;
    }
    if (buffer_.size() > kMaxMetricsLineBytes) buffer_.clear();
    buffer_ += data;
    if (TakeLine(out)) return NextMessage::kSend;
  }
}

}  // namespace roundhouse
