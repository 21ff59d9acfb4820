// What the first job of the queue needs to start, found while it still waits:
// the admitted job, its prepared data verified, its files opened, and whether
// what it was submitted with is still so.
//
//   Find -> (memory is there) -> Take -> data verified -> opened
//
// One job at a time; asking for another forgets the one before.  Runs on the
// event loop's thread; files are opened beside it.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_JOB_OPENER_H_
#define ROUNDHOUSE_SERVER_ADMISSION_JOB_OPENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/admission/admitted_jobs.h"
#include "server/admission/helper_options.h"
#include "server/admission/job_data.h"
#include "server/admission/job_paths.h"
#include "server/dataset/prepared_data.h"
#include "server/job/job_files.h"
#include "server/job/job_log.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/spec/hub_cache.h"
#include "server/spec/paths.h"
#include "server/store/store.h"

namespace roundhouse {

// Each status says what of it failed; what comes after the first is not there.
struct OpenedJob {
  // Its prepared data: RESOURCE_EXHAUSTED where they were damaged and there is
  // no room for others.
  absl::Status data;
  absl::StatusOr<std::unique_ptr<JobFiles>> files =
      absl::UnknownError("not opened");
  JobRecord job;
  // Read again where files had changed.
  absl::StatusOr<AdmittedJobs::Job> admitted =
      absl::UnknownError("not looked up");
  // Not OK: model or adapter are not what was submitted.
  absl::Status sources;
  // What adapters name as their base: the model as the hub has it, or its
  // directory here.
  HubName base;
  // BaseKey of the model; of a job with adapters.
  absl::StatusOr<std::string> base_key = std::string();
  // After which it ends, as it was asked to in an earlier life; none: it was
  // not.  An error: the mark is damaged.
  absl::StatusOr<std::optional<int64_t>> finish_step =
      absl::UnknownError("not read");
  // What its data hold, where the store does not know yet.
  std::optional<CountedData> counted;
  absl::StatusOr<JobDatasets> datasets = absl::UnknownError("not opened");
};

class JobOpener {
 public:
  // Everything outlives it.
  struct World {
    EventLoop& loop;
    JobStore& store;
    AdmittedJobs& admitted;
    const HelperOptions& helpers;
    const DataRoots& roots;
    const HubCache& hub;
    const JobPaths& paths;
    JobLog& log;
  };
  struct Calls {
    // `then` follows, from the loop, once it cannot be lost any more.
    std::function<void(const JobRecord& job, const std::string& what,
                       std::function<void()> then)>
        warn;
    // What was asked for is there now.
    std::function<void()> again;
  };

  JobOpener(const World& world, Calls calls);
  ~JobOpener();
  JobOpener(const JobOpener&) = delete;
  JobOpener& operator=(const JobOpener&) = delete;

  // The admitted job, or why there is none; nullopt: it is being read, `again`
  // comes then.
  std::optional<absl::StatusOr<AdmittedJobs::Job>> Find(const std::string& id);
  // Nullopt: not yet, `again` comes.  What is taken is forgotten.
  std::optional<OpenedJob> Take(const std::string& id);
  // The job that was asked to be taken and is not yet; "": none.
  std::string opening() const;
  // It can be taken.  REQUIRES: opening() is a job.
  bool opened() const;
  void Forget(const std::string& id);
  void Stop();

 private:
  struct Opening;

  void Begin(const std::string& id);
  void OnDataChecked(const PreparedDataCheck::Result& result);
  void Open();
  void OnFilesOpened(JobLog::Opened files);
  void OnOpened();

  const World world_;
  const Calls calls_;
  std::unique_ptr<Opening> opening_;  // null: of no job
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_JOB_OPENER_H_
