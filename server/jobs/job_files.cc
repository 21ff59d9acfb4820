#include "server/jobs/job_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/status.h"
#include "base/visible_text.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;

absl::StatusOr<int> OpenAppend(FileSite site, const std::string& path) {
  const int fd = file_calls::Open(site, path, kAppend, kFileMode);
  if (fd >= 0) return fd;
  return FileError("opening", path, errno);
}

void Append(FileSite site, int fd, const std::string& line) {
  // A full disk costs the line, never the job.
  [[maybe_unused]] ssize_t n =
      file_calls::Write(site, fd, line.data(), line.size());
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobFiles>> JobFiles::Open(
    const std::string& directory) {
  RETURN_IF_ERROR(MakeFolderDurably(kJobFolder, directory));
  ASSIGN_OR_RETURN(const int log_fd, OpenAppend(kJobLog, directory + "/log"));
  const auto metrics_fd = OpenAppend(kJobLines, directory + "/metrics.jsonl");
  if (!metrics_fd.ok()) {
    close(log_fd);
    return metrics_fd.status();
  }
  return std::unique_ptr<JobFiles>(
      new JobFiles(directory, log_fd, *metrics_fd));
}

JobFiles::~JobFiles() {
  close(log_fd_);
  close(metrics_fd_);
}

void JobFiles::Log(const std::string& text) {
  Append(kJobLog, log_fd_,
         absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ ", absl::Now(),
                                       absl::UTCTimeZone()),
                      VisibleLine(text), "\n"));
}

void JobFiles::Metric(const std::string& json) {
  Append(kJobLines, metrics_fd_, json + "\n");
}

absl::Status JobFiles::SetSamples(const std::vector<std::string>& lines) {
  // Most jobs have none, and then no file.
  std::error_code error;
  if (lines.empty() && !std::filesystem::exists(SamplesPath(), error)) {
    return absl::OkStatus();
  }
  return WriteFileDurably(kJobSamples, SamplesPath(), Joined(lines));
}

void JobFiles::AddSamples(const std::vector<std::string>& lines) {
  const auto fd = OpenAppend(kJobLines, SamplesPath());
  if (!fd.ok()) return Log(std::string(fd.status().message()));
  Append(kJobLines, *fd, Joined(lines));
  close(*fd);
}

absl::Status JobFiles::KeepMetricsUpTo(
    int64_t step, int64_t evaluated_step,
    const std::function<void(const nlohmann::json& line)>& show) {
  const std::string path = directory_ + "/metrics.jsonl";
  std::ifstream file(path);
  std::string kept, line;
  while (std::getline(file, line)) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") ||
        !json["step"].is_number_integer()) {
      continue;
    }
    const int64_t last = json.contains("eval_loss") ? evaluated_step : step;
    if (json["step"] > last) continue;
    kept += line + "\n";
    show(json);
  }
  RETURN_IF_ERROR(WriteFileDurably(kJobMetrics, path, kept));
  ASSIGN_OR_RETURN(const int fd, OpenAppend(kJobLines, path));
  close(metrics_fd_);
  metrics_fd_ = fd;
  return absl::OkStatus();
}

}  // namespace roundhouse
