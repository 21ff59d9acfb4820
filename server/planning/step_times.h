// How long the steps of a job will take, from a job that trained in the same
// way before.
#ifndef ROUNDHOUSE_SERVER_PLANNING_STEP_TIMES_H_
#define ROUNDHOUSE_SERVER_PLANNING_STEP_TIMES_H_

#include <cstdint>
#include <optional>
#include <string>

namespace roundhouse {

// Read of a metrics.jsonl: its newest steps.
inline constexpr int64_t kMeasuredTailBytes = 64 << 10;
// Fewer say nothing: the first steps of a job are slower than the others.
inline constexpr int kFewestMeasuredSteps = 3;

// What a step of the job does, as JSON: its resolved spec without what does not
// change that.  "": no JSON object.  Pure.
std::string StepWorkOf(const std::string& resolved);

// Whether a step of both jobs does the same work: their resolved specs (JSON)
// differ only in what does not change it: the number of steps, rates, seeds,
// what is saved and evaluated, names.  False for what is no JSON
// object.  Pure.
bool SameStepWork(const std::string& resolved, const std::string& other);

// The mean of `step_seconds` over the newest steps of a job's metrics.jsonl;
// nullopt where there are too few.  Lines that are none are passed over.
std::optional<double> MeasuredStepSeconds(const std::string& metrics_path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_STEP_TIMES_H_
