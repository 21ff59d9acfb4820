// Where a job is among its steps.  Plain values, counted in optimizer steps.
#ifndef ROUNDHOUSE_SERVER_STEPS_STEP_MARKS_H_
#define ROUNDHOUSE_SERVER_STEPS_STEP_MARKS_H_

#include <algorithm>
#include <cstdint>
#include <optional>

namespace roundhouse {

struct StepMarks {
  int64_t total = 0;      // by the spec
  int64_t base = 0;       // another job's checkpoint, which it goes on from
  int64_t completed = 0;  // updated
  int64_t begun = 0;      // the newest
  int64_t reduced = 0;    // the newest whose gradients are all there
  std::optional<int64_t> finish;  // it was told to end after it

  // The last step, unless patience ends first.
  int64_t last() const { return std::min(total, finish.value_or(total)); }
  // The first step that the job can end after and drop no work: the newest
  // that has begun, and one of this job at least.
  int64_t first_end() const {
    return finish.value_or(std::max(begun, base + 1));
  }
  // Goes on from a checkpoint of `step`.
  void GoOnFrom(int64_t step, bool own) {
    completed = begun = reduced = step;
    if (!own) base = step;
  }
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_STEP_MARKS_H_
