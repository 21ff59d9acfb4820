// Looks at the machine as the daemon would use it: measures, and asks the
// checks of this room.
//
//   for (const Finding& finding : Examine(options)) ...      // blocks
//
//   Doctor doctor([options] { return Examine(options); });   // for the API
//   ASSIGN_OR_RETURN(auto findings, doctor.Diagnose());
#ifndef ROUNDHOUSE_SERVER_DOCTOR_DOCTOR_H_
#define ROUNDHOUSE_SERVER_DOCTOR_DOCTOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/doctor/finding.h"
#include "server/doctor/measures.h"
#include "server/doctor/process_checks.h"

namespace roundhouse {

// No program may take longer: the driver, LibTorch's and Python's start.
inline constexpr absl::Duration kExamineLimit = absl::Seconds(20);
// Folders beyond these are not looked at: a hanging one takes its limit each.
inline constexpr size_t kMostRootsExamined = 32;

// Settings of the daemon, as server/daemon_options.h has them.
struct ExamineOptions {
  std::string state_dir;
  std::string socket_path;  // "": not a Unix socket
  std::vector<std::string> data_roots;
  uint64_t host_memory_bytes = 0;
  DeviceKind devices = DeviceKind::kCpu;
  RealtimeWish realtime = RealtimeWish::kAsked;
  std::string worker_program;
  std::string gpu_probe;
  std::string prepare_script;
  std::string python;
};

// Blocks for as long as kExamineLimit for each program, in sum about a minute
// at worst.  Any thread.
std::vector<Finding> Examine(const ExamineOptions& options);

// One examination at a time.  Thread-safe.
class Doctor {
 public:
  explicit Doctor(std::function<std::vector<Finding>()> examine);

  // kUnavailable: another one runs.
  absl::StatusOr<std::vector<Finding>> Diagnose();

 private:
  const std::function<std::vector<Finding>()> examine_;
  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOCTOR_DOCTOR_H_
