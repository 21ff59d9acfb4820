#include "server/job/job_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/status.h"
#include "base/visible_text.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

}  // namespace

LineFile::~LineFile() { Write(); }

absl::Status LineFile::Open() {
  Descriptor opened(file_calls::Open(site_, path_, kAppend, kFileMode));
  if (opened.get() < 0) return FileError("opening", path_, errno);
  file_ = std::move(opened);
  unwritten_.clear();
  return absl::OkStatus();
}

absl::Status LineFile::Append(const std::string& lines) {
  if (file_.get() < 0) RETURN_IF_ERROR(Open());
  if (unwritten_.size() + lines.size() <= kMaxUnwrittenBytes) {
    unwritten_ += lines;
  }
  Write();
  return absl::OkStatus();
}

// A part of a line may be written: what is written next begins with its rest.
void LineFile::Write() {
  while (!unwritten_.empty()) {
    const ssize_t n = file_calls::Write(site_, file_.get(), unwritten_.data(),
                                        unwritten_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    unwritten_.erase(0, static_cast<size_t>(n));
  }
}

absl::StatusOr<std::unique_ptr<JobFiles>> JobFiles::Open(
    const std::string& directory) {
  RETURN_IF_ERROR(MakeFolderDurably(kJobFolder, directory));
  std::unique_ptr<JobFiles> files(new JobFiles(directory));
  RETURN_IF_ERROR(files->log_.Open());
  RETURN_IF_ERROR(files->metrics_.Open());
  return files;
}

void JobFiles::Log(const std::string& text) {
  log_.Append(absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ ", WallTime(),
                                            absl::UTCTimeZone()),
                           VisibleLine(text), "\n"))
      .IgnoreError();  // it is open
}

void JobFiles::Metric(const std::string& json) {
  metrics_.Append(json + "\n").IgnoreError();  // it is open
}

absl::Status JobFiles::SetSamples(const std::vector<std::string>& lines) {
  // Most jobs have none, and then no file.
  std::error_code error;
  if (lines.empty() && !std::filesystem::exists(samples_.path(), error)) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(
      WriteFileDurably(kJobSamples, samples_.path(), Joined(lines)));
  return samples_.Open();
}

void JobFiles::AddSamples(const std::vector<std::string>& lines) {
  const absl::Status added = samples_.Append(Joined(lines));
  if (!added.ok()) Log(std::string(added.message()));
}

absl::Status JobFiles::KeepMetricsUpTo(
    int64_t step, int64_t evaluated_step,
    const std::function<void(const nlohmann::json& line)>& show) {
  std::ifstream file(metrics_.path());
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
  RETURN_IF_ERROR(WriteFileDurably(kJobMetrics, metrics_.path(), kept));
  return metrics_.Open();
}

}  // namespace roundhouse
