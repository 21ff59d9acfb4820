// <state-dir>/jobs/<uid>/metrics.jsonl: one JSON object a line, either a step
// (step, loss, learning_rate, grad_norm, epoch, tokens, step_seconds, with fp16
// loss_scale, with experts expert_load; no grad_norm where the step was
// skipped) or an evaluation (step, eval_loss, eval_perplexity).  A job that
// went on from a checkpoint writes the steps after it again: the later line
// counts.
//
// Stateless; thread-safe.
#ifndef ROUNDHOUSE_SERVER_API_HISTORY_STEP_HISTORY_H_
#define ROUNDHOUSE_SERVER_API_HISTORY_STEP_HISTORY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse {

inline constexpr size_t kMaxHistoryPoints = 1000;
// A longer line is none of ours.
inline constexpr size_t kMaxMetricsLineBytes = 64 << 10;

// nullopt for what is no metrics line (the torn last line of a killed writer).
std::optional<v1::StepMetrics> ParseMetricsLine(const std::string& line);

struct StepHistory {
  std::vector<v1::LossPoint> losses;  // The last kMaxHistoryPoints.
  std::vector<v1::EvalPoint> evals;   // The first and the last others.
};

// Empty when there is no such file.
absl::StatusOr<StepHistory> ReadStepHistory(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_HISTORY_STEP_HISTORY_H_
