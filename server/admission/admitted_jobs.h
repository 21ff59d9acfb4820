// The admitted jobs that have not begun to run, by id, so that nothing that was
// checked is read again; and those that an earlier daemon admitted, read when
// they are first asked for.
//
// Thread-safe.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_ADMITTED_JOBS_H_
#define ROUNDHOUSE_SERVER_ADMISSION_ADMITTED_JOBS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/admission/admitted_job.h"
#include "server/admission/job_checker.h"
#include "server/store/store.h"

namespace roundhouse {

// One takes tens of kilobytes.  Whoever has to make room is read again.
inline constexpr size_t kMaxAdmittedKept = 256;

class AdmittedJobs {
 public:
  using Job = std::shared_ptr<const AdmittedJob>;

  // `checker` outlives it.
  explicit AdmittedJobs(const JobChecker& checker) : checker_(checker) {}

  void Keep(const std::string& id, Job job);
  // Null: it is not kept.
  Job Kept(const std::string& id) const;
  // Kept, or taken up now and kept.  Blocks on the disk: not for the event
  // loop's thread.  Errors as JobChecker::TakeUp's.
  absl::StatusOr<Job> Get(const JobRecord& job);
  // Get, read again where files are not what they were.  Errors as Get's.
  absl::StatusOr<Job> GetAsIs(const JobRecord& job);
  // It runs, or will not.
  void Forget(const std::string& id);

 private:
  absl::StatusOr<Job> TakeUp(const JobRecord& job);

  const JobChecker& checker_;
  mutable Mutex mutex_;
  std::map<std::string, Job> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_ADMITTED_JOBS_H_
