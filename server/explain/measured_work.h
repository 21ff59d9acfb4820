// How long steps of jobs take, as measured in jobs that trained in the same
// way (planning/step_times.h): lengths of jobs that have not run.
//
// MeasuredWork is thread-compatible; functions are thread-safe.
#ifndef ROUNDHOUSE_SERVER_EXPLAIN_MEASURED_WORK_H_
#define ROUNDHOUSE_SERVER_EXPLAIN_MEASURED_WORK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/explain/pool_snapshot.h"
#include "server/store/store.h"

namespace roundhouse {

// Kinds of work; the one that was measured longest ago goes.
inline constexpr size_t kMaxMeasuredWork = 1'000;

// What a job's steps do; 0: not known.
uint64_t WorkOf(const std::string& resolved);
// Steps that a job that is stored makes in all; 0: not known before it runs.
int64_t StepsOf(const JobRecord& job);

class MeasuredWork {
 public:
  // What was measured in `length.measured_in`; its steps mean nothing.  Nothing
  // is noted of work 0.
  void Note(uint64_t work, const JobLength& length);
  // Null: never measured.
  const JobLength* Find(uint64_t work) const;

 private:
  struct Measured {
    JobLength length;
    int64_t noted = 0;
  };
  std::map<uint64_t, Measured> measured_;
  int64_t noted_ = 0;
};

// What the newest jobs of the store say, the oldest first.  Blocks on the disk.
using WorkLengths = std::vector<std::pair<uint64_t, JobLength>>;
absl::StatusOr<WorkLengths> ReadMeasuredWork(const JobStore& store);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_EXPLAIN_MEASURED_WORK_H_
