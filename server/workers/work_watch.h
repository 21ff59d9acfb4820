// Whether a worker shows anything of the slots and samples that it has, where
// its device is suspected: it may be in a call of the driver that never
// returns, which is not silence.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_WORKERS_WORK_WATCH_H_
#define ROUNDHOUSE_SERVER_WORKERS_WORK_WATCH_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "base/wire/messages.h"

namespace roundhouse {

// Watches one process.  Times are CLOCK_MONOTONIC's, as in the worker's
// messages.
class WorkWatch {
 public:
  void NoteSent(uint64_t attempt, const wire::Body& command);
  // Work that was done since Suspect ends the suspicion.
  void NoteHeard(int64_t now_ns, const wire::Message& message);
  // One that is suspected stays so, for the first reason.
  void Suspect(int64_t now_ns, const std::string& why);
  // Why it is stuck: suspected, with work, and nothing done of any for `limit`.
  // "": it is not.  Time without work does not count as far as this was called
  // in it.
  std::string Stuck(int64_t now_ns, absl::Duration limit);

 private:
  std::set<uint64_t> computing_;  // attempts of slots and samples
  int64_t suspected_ns_ = 0;      // since when, with work; 0: it is not
  std::string why_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WORKERS_WORK_WATCH_H_
