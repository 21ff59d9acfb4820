// In which order jobs whose data is ready are queued.  Several are validated at
// a time, and a short one may be ready first: it is held until those submitted
// before it are ready too, but not for ever, so that one that takes long holds
// up nobody.
//
// Pure; times are CLOCK_MONOTONIC in ns.
#ifndef ROUNDHOUSE_SERVER_ADMISSION_VALIDATION_ORDER_H_
#define ROUNDHOUSE_SERVER_ADMISSION_VALIDATION_ORDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "absl/time/time.h"

namespace roundhouse {

class ValidationOrder {
 public:
  // A validation that began at least `limit` ago holds up nobody.
  explicit ValidationOrder(absl::Duration limit)
      : limit_ns_(absl::ToInt64Nanoseconds(limit)) {}

  // `job` is the job's number, as submitted.
  void Began(int64_t job, int64_t now_ns);
  // Its data is ready; no effect on a job that has not begun.
  void Ready(int64_t job);
  // It failed, or nobody wants it any more; no effect on others.
  void Drop(int64_t job);

  // A ready job that nothing holds any more, and forgets it; none: nullopt.
  std::optional<int64_t> TakeReady(int64_t now_ns);
  // How long until time alone lets the next ready job go; none: nullopt.
  std::optional<absl::Duration> NextIn(int64_t now_ns) const;

  size_t ready_count() const { return ready_.size(); }

 private:
  // 0: nothing holds it.
  int64_t HeldFor(int64_t job, int64_t now_ns) const;

  const int64_t limit_ns_;
  std::map<int64_t, int64_t> began_;  // job to ns; those being validated
  std::set<int64_t> ready_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ADMISSION_VALIDATION_ORDER_H_
