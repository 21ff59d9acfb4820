// Where a job is in its life, and, once it is to end, how: one state.
//
//   loading ---StartSteps---> stepping ---StartFinal---> finalizing
//      |                         |                           |
//      | Stop                    | Stop                      | Stop
//      v                         v                           v
//   stopping its load         stopping: letting steps end -> abandoned -> quiet
//      |                                                             |
//      +------------------------- Finish ----------------------------+
//                                   v
//                                finished
//
// A job that has an outcome is ending: nothing new begins.  A failure stays a
// failure, and overrules a pause as a cancellation does.
// Values only; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_RUN_JOB_PHASE_H_
#define ROUNDHOUSE_SERVER_RUN_JOB_PHASE_H_

#include <string>
#include <variant>

#include "server/job/job_reports.h"

namespace roundhouse {

class JobPhase {
 public:
  bool loading() const { return Is<Loading>() || Is<StoppingLoad>(); }
  bool stepping() const { return Is<Stepping>(); }
  bool finalizing() const { return Is<Finalizing>(); }
  bool stopping() const { return Is<Stopping>(); }
  bool finished() const { return Is<Finished>(); }

  // It has an outcome.
  bool ending() const { return Outcome() != nullptr; }
  // REQUIRES: ending() (checked).
  const JobOutcome& outcome() const;
  // It ends PAUSED, and nothing went wrong that would be why.
  bool pausing() const;

  // stopping(), and steps that have begun may still end.
  bool letting_end() const { return At(Rest::kLettingEnd); }
  // stopping(), and nothing of the job is with a worker.
  bool quiet() const { return At(Rest::kQuiet); }

  // REQUIRES of each: the arrow is in the diagram (checked).
  void StartSteps();
  void StartFinal();
  // With the outcome that it is to have, unless it has one that is not a pause.
  void Stop(JobOutcome outcome);
  void Abandon();  // the dispatcher was told to give up its steps
  void BeQuiet();
  // Another outcome, which replaces that of before.  REQUIRES: ending().
  void SetOutcome(JobOutcome outcome);
  // Adds to the outcome's message.  REQUIRES: ending().
  void AddToMessage(const std::string& text);
  // REQUIRES: ending() (checked).
  void Finish();

 private:
  enum class Rest { kLettingEnd, kAbandoned, kQuiet };
  struct Loading {};
  struct Stepping {};
  struct Finalizing {};
  struct StoppingLoad {
    JobOutcome outcome;
  };
  struct Stopping {
    JobOutcome outcome;
    Rest rest = Rest::kLettingEnd;
  };
  struct Finished {
    JobOutcome outcome;
  };

  template <typename State>
  bool Is() const {
    return std::holds_alternative<State>(state_);
  }
  bool At(Rest rest) const {
    const auto* stopping = std::get_if<Stopping>(&state_);
    return stopping != nullptr && stopping->rest == rest;
  }
  const JobOutcome* Outcome() const;
  JobOutcome& MutableOutcome();

  std::variant<Loading, Stepping, Finalizing, StoppingLoad, Stopping, Finished>
      state_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_JOB_PHASE_H_
