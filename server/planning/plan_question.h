// What is asked of the planner, as text from outside, checked: from a model's
// name and the job file's words to a ForecastQuestion.
//
// Thread-safe; blocks on the disk for config.json.
#ifndef ROUNDHOUSE_SERVER_PLANNING_PLAN_QUESTION_H_
#define ROUNDHOUSE_SERVER_PLANNING_PLAN_QUESTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/estimate/step_forecast.h"
#include "server/access/caller.h"
#include "server/spec/data_files.h"

namespace roundhouse {

// Names, and what an empty text or 0 means, are those of a job file, but where
// a line says otherwise.
struct PlanQuestion {
  Caller caller;        // who asks
  std::string model;    // a directory, a config.json, job:NAME or a hub id
  std::string devices;  // "8xrtx4090"
  int64_t host_memory_bytes = 0;  // 0: whatever it takes
  double host_bandwidth = 0;      // GB/s; 0: the simulator's own
  std::string method;
  int64_t lora_r = 0;
  std::vector<std::string> target_modules;
  int64_t max_length = 0;
  int64_t batch_size = 0;
  int64_t micro_batch_size = 0;
  std::string gradient_checkpointing;
  std::string saved_inputs;
  std::string determinism;  // "": fast, the default of jobs on GPUs
  std::optional<double> max_grad_norm;
  bool fp16_accumulation = false;
};

// kInvalidArgument, or kUnimplemented for a family that cannot be planned for,
// naming the field.
absl::StatusOr<ForecastQuestion> ReadPlanQuestion(const PlanQuestion& question,
                                                  const FileOpener& files,
                                                  const PathResolver& resolve);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_PLAN_QUESTION_H_
