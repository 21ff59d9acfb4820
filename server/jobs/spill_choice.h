// Which job is saved and leaves its memory, or its place, to another one.
//
// Jobs that were told to pause and keep their memory go first, the longest
// first: nobody waits for them.  Then come those of a lower class than the job
// that waits, the lowest class first, of equals the one that the queue would
// start last (admission/job_queue.h).  Of all these the first one is taken that
// is enough alone, else the first.
//
// A pure function.
#ifndef ROUNDHOUSE_SERVER_JOBS_SPILL_CHOICE_H_
#define ROUNDHOUSE_SERVER_JOBS_SPILL_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/priority.h"
#include "server/admission/job_queue.h"

namespace roundhouse {

// A job that has memory.
struct SpillCandidate {
  bool stays = false;                       // it can't be saved now
  int64_t number = 0;                       // of jobs, later ones have greater
  bool rests = false;                       // it was told to pause
  absl::Time since = absl::InfinitePast();  // it rests
  Priority priority = Priority::kNormal;
  JobQueue::Turn turn = {};
  uint64_t bytes = 0;       // that it gives back for itself
  std::string base = {};    // that it has in common with others; "": none
  uint64_t base_bytes = 0;  // given back by the last one that has it
};

// What a job that waits lacks.
struct SpillNeed {
  Priority priority = Priority::kNormal;
  uint64_t bytes = 0;     // 0: a place alone, which those that rest don't have
  std::string base = {};  // that it counts on to be there; "": none
};

// An index into `candidates`; none: no spill can help, for all that may be
// taken are not enough.
std::optional<size_t> ChooseSpill(const std::vector<SpillCandidate>& candidates,
                                  const SpillNeed& need);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_SPILL_CHOICE_H_
