// The jobs of a random history, and what the result of one has to hold.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_TESTS_SIM_JOB_PLAN_H_
#define ROUNDHOUSE_TESTS_SIM_JOB_PLAN_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roundhouse::sim {

// A number below the one given.
using DrawNumber = std::function<uint64_t(uint64_t below)>;

struct JobPlan {
  int64_t steps = 0;
  bool adapters = false;   // method: lora
  bool validates = false;  // it has a validation_dataset
  std::vector<std::string> prompts;
  int64_t eval_steps = 0;

  // The job file.
  std::string text;
};

JobPlan DrawJobPlan(const DrawNumber& draw);

// What the workers and helpers here make of a prompt, in at most so many
// tokens.
std::vector<int32_t> CompletionOf(const std::string& prompt, int64_t most);
std::string LettersOf(const std::vector<int32_t>& tokens);

// What `output`, the result after `last_step` steps, does not hold as it
// should.  Samples of the steps in `unsampled` may be missing: a warning said
// so.
absl::Status CheckResult(const JobPlan& plan, const std::string& output,
                         int64_t last_step, const std::set<int64_t>& unsampled);

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_JOB_PLAN_H_
