// How things stand for the jobs of a daemon at one moment: all that says why
// one of them waits, and when it may start and end.
//
// The engine fills it on its loop; what is made of it is pure.  Plain values.
#ifndef ROUNDHOUSE_SERVER_EXPLAIN_POOL_SNAPSHOT_H_
#define ROUNDHOUSE_SERVER_EXPLAIN_POOL_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/job_state.h"
#include "base/priority.h"
#include "scheduler/forecast/pool_forecast.h"
#include "scheduler/share/fair_shares.h"
#include "server/limits/sharing.h"
#include "server/observe/device_ledger.h"
#include "server/store/store_records.h"

namespace roundhouse {

struct JobRef {
  std::string id;  // "": none
  std::string project;
};

// How long a job still takes, as far as that is known.
struct JobLength {
  int64_t steps = 0;  // that are left
  double step_device_seconds = 0;
  double most_devices = kAnyDevices;  // that it keeps busy
  double loading_seconds = 0;
  double ending_seconds = 0;
  JobRef measured_in;  // none: in its own steps
};

struct WaitingJob {
  std::string id;
  JobOwner owner;
  Priority priority = Priority::kNormal;
  size_t age = 0;    // the lowest of its class has waited longest
  bool ran = false;  // and goes before those of its class that did not
  // Its need of host memory; none: not known.
  std::optional<uint64_t> host_bytes;
  uint64_t shared_bytes = 0;  // the part of them that others have there already
  std::optional<JobLength> length;
};

// What it had of the devices lately.
struct ServedJob {
  double window_seconds = 0;
  double device_seconds = 0;
  double all_device_seconds = 0;  // of all jobs, and samples
  double host_seconds = 0;
};

struct ActiveJob {
  std::string id;
  JobOwner owner;
  Priority priority = Priority::kNormal;
  JobState state = JobState::kLoading;
  bool waits = false;  // with its memory, for the disk or for somebody
  bool rests = false;  // it gives its memory to the first that needs it
  // It is being saved, has no place any more, and is queued again then or not.
  bool leaves = false;
  bool comes_back = false;
  bool has_steps = false;
  uint64_t host_bytes = 0;    // that it gives back
  double loaded_seconds = 0;  // since it began to load
  std::optional<JobLength> length;
  double step_seconds = 0;  // of late; 0: not known
  ServedJob served;
};

struct PoolSnapshot {
  absl::Time now;
  // The one that is asked about, without texts; none: nobody asked.
  JobRecord asked;

  bool stopping = false;
  bool reserve_held = true;  // of the disk
  int64_t max_running_jobs = 0;
  int64_t places_taken = 0;
  Sharing sharing;
  SharedUse used;
  // Device-seconds that count in the order.
  std::map<std::string, double> project_use;
  std::map<std::pair<std::string, std::string>, double> user_use;

  // The first of the queue, in the order in which they go now, and the one that
  // is asked about, however far behind.
  std::vector<WaitingJob> queue;
  size_t queue_size = 0;
  size_t asked_place = 0;  // from 1; 0: it is not here
  std::string opening;     // it stays the first of its class; "": none

  std::vector<ActiveJob> active;

  uint64_t memory_limit_bytes = 0;
  uint64_t memory_used_bytes = 0;
  // What one job can get, with that of jobs that rest.
  uint64_t memory_available_bytes = 0;
  bool memory_being_freed = false;

  int devices_up = 0;
  int devices_starting = 0;
  int devices_lost = 0;
  int devices_out = 0;
  double window_seconds = 0;
  DeviceTimes times;  // of all devices in it
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXPLAIN_POOL_SNAPSHOT_H_
