// What a job's steps are made of: rows in rounds, micro-batches and groups, and
// the numbers that order what they read and write.
//
// A pass is a number that a round's words are raised to, a version one that a
// unit's weights have; both are drawn from one sequence and only rise.
//
// Values only, but for reading the datasets; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_STEPS_STEP_MAKER_H_
#define ROUNDHOUSE_SERVER_STEPS_STEP_MAKER_H_

#include <cstdint>
#include <vector>

#include "server/dataset/dataset.h"
#include "server/spec/spec.h"
#include "server/steps/step_entry.h"

namespace roundhouse {

class StepMaker {
 public:
  // All outlive it; `validation` null: there is none.
  StepMaker(const ResolvedSpec& spec, const Dataset& train,
            const Dataset* validation);

  int64_t steps_per_epoch() const { return order_.steps_per_epoch(); }
  // The weights that the newest step leaves have it.
  uint64_t version() const { return version_; }

  // The weights are there: answers their version.  REQUIRES: no step was made.
  uint64_t FirstVersion();
  // Optimizer step `step`, from 1, in rounds of `micro_batches` at most; the
  // caller fills in its update and loss scale.  Steps are made in their order.
  StepEntry Train(int64_t step, int micro_batches);
  // An evaluation of the weights that `completed` steps left.
  // REQUIRES: a validation set; no step is unfinished.
  StepEntry Evaluate(int64_t completed, int micro_batches);
  // The newest step makes no update: nobody reads the version that never comes.
  void Skip(const StepEntry& entry) { version_ = entry.data.version; }

 private:
  StepEntry Make(const Dataset& data, const std::vector<int64_t>& rows,
                 int micro_batches);

  const ResolvedSpec& spec_;
  const Dataset& train_;
  const Dataset* const validation_;
  BatchOrder order_;
  uint64_t next_pass_ = 1;
  uint64_t version_ = 0;           // the newest step leaves it
  uint64_t previous_version_ = 0;  // the one before it leaves it
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_STEP_MAKER_H_
