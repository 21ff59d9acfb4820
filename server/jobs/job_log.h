// Lines for the logs of jobs that do not run: warnings, and how they ended.
// Jobs that run write their own (running_job.h).
//
// Runs on the event loop's thread; the files are opened and written beside it,
// in the order in which the lines were said.
#ifndef ROUNDHOUSE_SERVER_JOBS_JOB_LOG_H_
#define ROUNDHOUSE_SERVER_JOBS_JOB_LOG_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/jobs/job_files.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

class JobLog {
 public:
  explicit JobLog(EventLoop& loop) : line_(loop) {}

  // Adds a line to the log of the job with this directory.  `then` follows when
  // it is written, or can't be: a log describes, nothing depends on it.
  void Say(
      const std::string& directory, const std::string& text,
      std::function<void()> then = [] {});

  // Opens the files of a job that is to run, behind all lines said before.
  using Opened = absl::StatusOr<std::unique_ptr<JobFiles>>;
  void Open(const std::string& directory, std::function<void(Opened)> then);

 private:
  Background line_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_JOB_LOG_H_
