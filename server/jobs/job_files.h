// A job's own files that people and the API read: its log, its step metrics and
// the completions of its eval_prompts.
//
//   <state-dir>/jobs/<uid>/log            text, a line an event
//   <state-dir>/jobs/<uid>/metrics.jsonl  a JSON object a step or evaluation
//   <state-dir>/jobs/<uid>/samples.jsonl  a JSON object a completion
//
// Appended unbuffered, not synced: they describe, nothing is rebuilt from them.
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_JOBS_JOB_FILES_H_
#define ROUNDHOUSE_SERVER_JOBS_JOB_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace roundhouse {

class JobFiles {
 public:
  // Makes the directory where there is none.
  static absl::StatusOr<std::unique_ptr<JobFiles>> Open(
      const std::string& directory);
  ~JobFiles();
  JobFiles(const JobFiles&) = delete;
  JobFiles& operator=(const JobFiles&) = delete;

  // One line with the time in front.  Newlines and control characters, as names
  // of files may have, are spelled out (base/visible_text.h).
  void Log(const std::string& text);
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
  void AddSamples(const std::vector<std::string>& lines);

 private:
  std::string SamplesPath() const { return directory_ + "/samples.jsonl"; }

  JobFiles(const std::string& directory, int log_fd, int metrics_fd)
      : directory_(directory), log_fd_(log_fd), metrics_fd_(metrics_fd) {}

  const std::string directory_;
  const int log_fd_;
  int metrics_fd_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_JOB_FILES_H_
