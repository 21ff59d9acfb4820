// A job's own files that people and the API read: its log, its step metrics and
// the completions of its eval_prompts.
//
//   <state-dir>/jobs/<uid>/log            text, a line an event
//   <state-dir>/jobs/<uid>/metrics.jsonl  a JSON object a step or evaluation
//   <state-dir>/jobs/<uid>/samples.jsonl  a JSON object a completion
//
// Appended unbuffered, not synced: they describe, nothing is rebuilt from them.
// What a full disk does not take is kept and written with the next line, or at
// the end: up to kMaxUnwrittenBytes a file, lines beyond that are lost.
// Thread-compatible; the log may be written while another thread changes the
// other files.
#ifndef ROUNDHOUSE_SERVER_JOB_JOB_FILES_H_
#define ROUNDHOUSE_SERVER_JOB_JOB_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/descriptor.h"
#include "base/files/file_site.h"
#include "nlohmann/json_fwd.hpp"

namespace roundhouse {

inline constexpr size_t kMaxUnwrittenBytes = 1 << 20;

// How a warning stands in the log, and among the job's events.
inline std::string WarningText(const std::string& what) {
  return "WARNING: " + what;
}

// Appends whole lines to a file, in their order.
class LineFile {
 public:
  LineFile(FileSite site, std::string path)
      : site_(site), path_(std::move(path)) {}
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  const std::string& path() const { return path_; }
  // Makes the file where there is none, and opens what the path names now; what
  // was not written to the one before is forgotten.
  absl::Status Open();
  // `lines` end with a line end.  The text of a failure to open; a disk that
  // takes nothing is none.
  absl::Status Append(const std::string& lines);
  // Whether the disk has not taken all of it; another Append, or Write, tries
  // again.
  bool waits() const { return !unwritten_.empty(); }
  void Write();

 private:
  const FileSite site_;
  const std::string path_;
  Descriptor file_;
  std::string unwritten_;
};

class JobFiles {
 public:
  // Makes the directory where there is none.
  static absl::StatusOr<std::unique_ptr<JobFiles>> Open(
      const std::string& directory);
  JobFiles(const JobFiles&) = delete;
  JobFiles& operator=(const JobFiles&) = delete;

  // One line with the time in front.  Newlines and control characters, as names
  // of files may have, are spelled out (base/visible_text.h).
  void Log(const std::string& text);
  // Whether the disk has not taken all lines of the log yet, and asking it
  // again.
  bool log_waits() const { return log_.waits(); }
  void WriteLogAgain() { log_.Write(); }
  // One JSON object, without its line end.
  void Metric(const std::string& json);

  // Drops what will be done again: steps after `step`, and evaluations after
  // `evaluated_step`, which may be earlier (a job can stop between a step and
  // its evaluation) or -1, none.  Shows each line that stays.
  absl::Status KeepMetricsUpTo(
      int64_t step, int64_t evaluated_step,
      const std::function<void(const nlohmann::json& line)>& show);

  // Lines of samples.jsonl (evaluation_samples.h), without their ends: all of
  // them, or more of them.
  absl::Status SetSamples(const std::vector<std::string>& lines);
  // So that AddSamples opens nothing.
  absl::Status OpenSamples() { return samples_.Open(); }
  void AddSamples(const std::vector<std::string>& lines);

 private:
  explicit JobFiles(const std::string& directory)
      : log_(kJobLog, directory + "/log"),
        metrics_(kJobLines, directory + "/metrics.jsonl"),
        samples_(kJobLines, directory + "/samples.jsonl") {}

  LineFile log_;
  LineFile metrics_;
  LineFile samples_;  // opened when there are any
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOB_JOB_FILES_H_
