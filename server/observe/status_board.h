// What the status page shows (status_page.h): numbers of devices and jobs, as
// the event loop published them last, and the JSON that the page asks for.
//
// No user, name, path, text or message is in it: whoever has an account on the
// server can read it.  Everything is bounded.
//
//   StatusBoard board;
//   board.Publish(std::move(snapshot));       // the event loop, once a second
//   std::optional<std::string> json = board.Json();  // any thread
#ifndef ROUNDHOUSE_SERVER_OBSERVE_STATUS_BOARD_H_
#define ROUNDHOUSE_SERVER_OBSERVE_STATUS_BOARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/job_state.h"
#include "base/model/expert_load.h"
#include "base/mutex.h"
#include "server/observe/device_ledger.h"
#include "server/observe/loss_curve.h"
#include "server/observe/slot_history.h"

namespace roundhouse {

// Jobs that wait, at most; the page says how many more there are.
inline constexpr size_t kMaxShownQueue = 100;
// Jobs that ended, the newest.
inline constexpr size_t kMaxShownEnded = 10;
// The page has as many that people with colour blindness tell apart.
inline constexpr int kJobColors = 6;

struct StatusDevice {
  int index = 0;
  std::string kind;          // "cpu", "cuda"
  std::string product_name;  // of a GPU
  std::string state;         // "up", "starting", "lost", "taken out"
  std::string out_as;        // "lent", "fenced", "yielded"; "": none of them
  std::string job;           // of the newest slot; ""
  int restarts = 0;
  int64_t memory_used_bytes = 0;
  int64_t memory_limit_bytes = 0;
  DeviceTimes times;  // of the last 10 s
  double bubble_ratio = 0;
  double link_up_ratio = 0;  // host to device
  double link_down_ratio = 0;
  std::vector<SlotBlock> slots;  // of the last minute
  int64_t slots_since_ns = 0;
};

struct StatusJob {
  std::string id;
  int color = 0;
  JobState state = JobState::kLoading;
  int64_t step = 0;
  int64_t total_steps = 0;  // 0: not known yet
  double epoch = 0;
  double tokens_per_second = 0;
  double share = 0;  // of all jobs' compute time of late
  std::optional<ExpertLoadSummary> expert_load;  // in the last step
  std::optional<absl::Time> eta;
  std::vector<LossPoint> losses;
  std::vector<LossPoint> validation_losses;
};

struct StatusQueued {
  std::string id;
  absl::Time since;
};

struct StatusEnded {
  std::string id;
  int color = -1;  // -1: it never ran
  JobState state = JobState::kFailed;
  JobReason reason = JobReason::kNone;
  absl::Time ended;
};

struct StatusSnapshot {
  absl::Time time;
  int64_t now_ns = 0;  // CLOCK_MONOTONIC
  std::string version;
  absl::Time start_time;
  bool stopping = false;
  int max_running_jobs = 0;
  int64_t host_used_bytes = 0;
  int64_t host_limit_bytes = 0;
  std::vector<StatusDevice> devices;
  std::vector<StatusJob> jobs;
  std::vector<StatusQueued> queue;  // the first kMaxShownQueue, in order
  int64_t queue_count = 0;          // of all
  int64_t validating = 0;           // jobs whose data are read first
  std::vector<StatusEnded> ended;   // the newest last
};

// A job's own where no job in `taken` has it, else the next free one.
int ChooseJobColor(int64_t job_number, const std::set<int>& taken);

// What the page's script reads; docs/operations.md names its fields.
std::string StatusJson(const StatusSnapshot& snapshot);

// Thread-safe; Publish never waits for Json.
class StatusBoard {
 public:
  void Publish(StatusSnapshot snapshot);
  // nullopt before the first Publish.
  std::optional<std::string> Json();

 private:
  Mutex json_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  Mutex mutex_;
  std::shared_ptr<const StatusSnapshot> newest_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const StatusSnapshot> written_ ABSL_GUARDED_BY(json_mutex_);
  std::string json_ ABSL_GUARDED_BY(json_mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_STATUS_BOARD_H_
