// What the job store keeps, as plain values, and their JSON columns.
//
// Thread-compatible values; pure functions.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_RECORDS_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/job_state.h"
#include "base/model/expert_load.h"
#include "base/priority.h"
#include "nlohmann/json_fwd.hpp"

namespace roundhouse {

// What preparing the datasets found.
struct DatasetCounts {
  int64_t train_sequences = 0;
  int64_t train_tokens = 0;
  int64_t train_truncated = 0;
  int64_t train_dropped = 0;
  int64_t validation_sequences = 0;
  int64_t validation_tokens = 0;
  int64_t validation_truncated = 0;
  int64_t validation_dropped = 0;
  // Nats per target token of the validation set under a bigram count model.
  std::optional<double> bigram_validation_loss;
  std::string sha256;
  bool operator==(const DatasetCounts&) const = default;
};

// Where a device's time went while the job ran.
struct DeviceUse {
  int device = 0;
  double compute_seconds = 0;
  double bubble_seconds = 0;
  bool operator==(const DeviceUse&) const = default;
};

// As an object of metrics.jsonl and of the store; nothing for what is none.
nlohmann::json ExpertLoadToJson(const ExpertLoadSummary& load);
std::optional<ExpertLoadSummary> ExpertLoadFromJson(const nlohmann::json& in);

// The numbers of a running job.  In memory; on disk as of the last transition
// or checkpoint.
struct JobProgress {
  int64_t step = 0;  // Finished optimizer steps.
  int64_t total_steps = 0;
  double epoch = 0;
  int64_t tokens = 0;  // Target tokens trained on.
  std::optional<double> loss;
  std::optional<double> learning_rate;
  std::optional<double> grad_norm;
  std::optional<ExpertLoadSummary> expert_load;  // of the last step
  double tokens_per_second = 0;
  std::optional<absl::Time> eta;
  // While VALIDATING: the share of the datasets that is read.  Not stored.
  double data_read = 0;
  std::vector<DeviceUse> device_use;
  // For a PAUSED job: the daemon that paused it keeps its memory.  Written by
  // the transition.
  bool memory_kept = false;
  bool operator==(const JobProgress&) const = default;
};

// Where jobs of before projects are.
inline constexpr char kDefaultProject[] = "default";

struct JobRecord {
  std::string id;   // "job-17"
  std::string uid;  // 32 hexadecimal digits
  JobState state = JobState::kValidating;
  JobReason reason = JobReason::kNone;
  std::string message;
  std::string owner;      // Whose job it is; at first the principal.
  std::string project;    // "default" until there are others.
  std::string principal;  // Who made it, as the caller of Create said.
  Priority priority = Priority::kNormal;  // At first its file's.
  absl::Time create_time;
  std::optional<absl::Time> start_time;  // First LOADING.
  std::optional<absl::Time> end_time;
  std::string text;
  std::string resolved;
  std::string files;
  std::string output_name;
  std::string output_path;
  std::string last_checkpoint_path;
  int attempts = 0;
  int64_t revision = 0;
  std::optional<DatasetCounts> dataset;
  JobProgress progress;
};

struct JobEvent {
  int64_t revision = 0;
  std::string job_id;
  absl::Time time;
  // "state", "checkpoint", "details", "worker", "note", "priority", "removed"
  std::string type;
  JobState state = JobState::kValidating;
  JobReason reason = JobReason::kNone;
  std::string message;
  int64_t step = 0;
};

struct CheckpointRecord {
  int64_t step = 0;
  std::string path;
  int64_t size_bytes = 0;
  absl::Time create_time;
};

// "job-17" <-> 17; nullopt for what no job was ever called.
std::string NameOfJob(int64_t number);
std::optional<int64_t> JobNumber(const std::string& id);

std::string ProgressToJson(const JobProgress& progress);
absl::StatusOr<JobProgress> ProgressFromJson(const std::string& json);
std::string DatasetToJson(const std::optional<DatasetCounts>& dataset);
absl::StatusOr<std::optional<DatasetCounts>> DatasetFromJson(
    const std::string& json);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_RECORDS_H_
