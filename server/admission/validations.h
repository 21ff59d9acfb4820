// Jobs whose data is prepared and whose eval_prompts are looked at, several at
// a time (helper_lanes.h), and handed on to the queue in the order in which
// they were submitted (validation_order.h).
//
//   waiting -> preparing -> prompts -> counting -> ready -> queued
//
// Where descriptors are short nothing is begun, and what is under way is tried
// again.  Runs on the event loop's thread; files are opened beside it.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_VALIDATIONS_H_
#define ROUNDHOUSE_SERVER_ADMISSION_VALIDATIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/admission/admitted_jobs.h"
#include "server/admission/helper_options.h"
#include "server/admission/job_data.h"
#include "server/admission/job_paths.h"
#include "server/admission/validation_order.h"
#include "server/arena/host_arena.h"
#include "server/dataset/helper_lanes.h"
#include "server/dataset/helper_limits.h"
#include "server/dataset/preparer.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/sample/prompt_run.h"
#include "server/spec/paths.h"
#include "server/store/store.h"
#include "server/workers/worker_pool.h"

namespace roundhouse {

class Validations {
 public:
  // Everything outlives it.
  struct World {
    EventLoop& loop;
    HostArena& arena;
    WorkerPool& pool;
    JobStore& store;
    AdmittedJobs& admitted;
    const HelperOptions& helpers;
    const DataRoots& roots;
    const JobPaths& paths;
  };
  struct Calls {
    // Its data are ready, and it is its turn to be queued.
    std::function<void(const std::string& id)> queue;
    // They are not, and why: INVALID_ARGUMENT is the job's own fault,
    // RESOURCE_EXHAUSTED and DATA_LOSS the disk's.
    std::function<void(const std::string& id, const absl::Status&)> fail;
    // What its prepared data hold.
    std::function<void(const std::string& id, const DatasetCounts&)> counted;
    std::function<void(const JobRecord& job, const std::string& what)> warn;
    // There may be something to start: Start is to be called.
    std::function<void()> again;
  };

  Validations(const World& world, Calls calls);
  ~Validations();
  Validations(const Validations&) = delete;
  Validations& operator=(const Validations&) = delete;

  // A job that is VALIDATING; no effect on one that is here already.
  void Add(const std::string& id);
  // It is not to be validated any more; no call about it follows.
  void Forget(const std::string& id);
  // The daemon ends: as if all were forgotten.
  void Stop();

  // Hands ready jobs on.
  void QueueThoseReady();
  // Whether descriptors are left to take jobs up; else `again` comes.
  bool MayTakeUp();
  // Begins with those whose turn it is.
  void Start();

  // How many jobs wait, are validated, or are held for an earlier one.
  size_t count() const { return lanes_.size() + order_.ready_count(); }

 private:
  struct Validation {
    explicit Validation(EventLoop& loop) : background(loop) {}
    std::unique_ptr<Preparer> preparer;
    std::unique_ptr<PromptRun> prompt_check;
    Background background;  // ends with it: nothing follows
  };
  struct Prompts {
    AdmittedJobs::Job job;
    bool chat_template = false;
  };

  bool HasDescriptors();
  bool MayComeAgain(const absl::Status& status);
  // False: there is nothing to validate.
  bool StartOne(const std::string& id);
  // The datasets are prepared, or not.
  void OnPrepared(const std::string& id, const absl::Status& status);
  void FindPrompts(const std::string& id);
  void StartPromptCheck(const std::string& id, const Prompts& prompts);
  void OnPromptsChecked(const std::string& id, const absl::Status& status);
  void CountData(const std::string& id);
  void OnCounted(const JobRecord& job, const CountedData& data);
  void End(const std::string& id, const absl::Status& status);
  // `next`, unless it is forgotten meanwhile.
  void After(absl::Duration delay, const std::string& id,
             std::function<void()> next);

  const World world_;
  const Calls calls_;
  HelperLanes lanes_{{.short_running = kShortValidations,
                      .long_running = kLongValidations,
                      .running_each = kValidationsEach}};
  ValidationOrder order_{kValidationOrderLimit};
  std::map<std::string, Validation> running_;  // by id
  EventLoop::TimerId order_timer_ = 0;
  EventLoop::TimerId shortage_timer_ = 0;
  bool told_of_shortage_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_VALIDATIONS_H_
