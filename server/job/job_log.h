// Lines for the logs of jobs that do not run: warnings, and how they ended.
// Jobs that run write their own (running_job.h).
//
// What a full disk does not take is kept, up to kMaxUnwrittenLogs logs, and
// written with the log's next line, by TryAgain, by the job once it runs, or as
// the daemon ends.  A daemon that is killed before has lost it: what people
// must not miss is an event in the store, too (Engine::Warn).
//
// Runs on the event loop's thread; the files are opened and written beside it,
// in the order in which the lines were said.
#ifndef ROUNDHOUSE_SERVER_JOB_JOB_LOG_H_
#define ROUNDHOUSE_SERVER_JOB_JOB_LOG_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/job/job_files.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

// Each holds the log's descriptors.  Lines of further ones are lost.
inline constexpr size_t kMaxUnwrittenLogs = 32;

class JobLog {
 public:
  explicit JobLog(EventLoop& loop);
  ~JobLog();
  JobLog(const JobLog&) = delete;
  JobLog& operator=(const JobLog&) = delete;

  // Adds a line to the log of the job with this directory.  `then` follows when
  // it is written or kept, or can't be: a log describes, nothing depends on it.
  void Say(
      const std::string& directory, const std::string& text,
      std::function<void()> then = [] {});

  // Opens the files of a job that is to run, behind all lines said before; what
  // was kept of them comes with the files.
  using Opened = absl::StatusOr<std::unique_ptr<JobFiles>>;
  void Open(const std::string& directory, std::function<void(Opened)> then);

  // The disk may have room again.  Cheap where nothing is kept.
  void TryAgain();

 private:
  class Unwritten;

  const std::shared_ptr<Unwritten> unwritten_;  // shared with the work
  bool trying_ = false;                         // TryAgain's work is under way
  Background line_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOB_JOB_LOG_H_
