// What a JobRunner has under way: steps, and what of them is with workers.
#ifndef ROUNDHOUSE_SERVER_JOBS_RUNNER_WORK_H_
#define ROUNDHOUSE_SERVER_JOBS_RUNNER_WORK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/loss_scaler.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/actions.h"
#include "server/jobs/commands.h"
#include "server/jobs/start_point.h"
#include "server/pool/files_line.h"
#include "server/weights/checkpoint.h"
#include "server/weights/file_table.h"

namespace roundhouse {

// Pieces of work that may wait for a job's background thread.
inline constexpr size_t kMaxBackgroundWork = 16;

// What a disk that fails, or a shortage, keeps from being read or written: it
// may pass, and the job waits for it.
inline bool MayPass(const absl::Status& status) {
  return absl::IsInternal(status) || absl::IsUnavailable(status);
}

struct OutSlot {
  DeviceId device{};
  uint64_t attempt = 0;
  RunSlotAction action;
  int64_t enabled_ns = 0;  // the event that made it possible
  bool lost = false;       // its worker died; it will be sent again
};

struct OutHostOp {
  RunHostOpAction action;
  uint64_t attempt = 0;
};

// The steps that log_history has no line of yet.
struct LossSinceLog {
  double sum = 0;
  int64_t steps = 0;
};

// What changes under a checkpoint while it is written.
struct BeingSaved {
  int64_t tokens = 0;  // trained on
  std::optional<LossScaler::State> loss_scaler;
  int64_t begun_ns = 0;
};

// A checkpoint's directory, or the output's.
struct DirectoryWrite {
  std::shared_ptr<DirectoryPlan> plan;
  bool checkpoint = false;
  std::function<void(absl::Status)> done;
};

// It could not be written, and the job waits with it.
struct HeldWrite {
  DirectoryWrite write;
  bool trying = false;  // again
};

struct StepEntry {
  StepData data;
  // Results of fused and evaluation slots: round, micro-batch -> result.
  std::map<std::pair<int, uint32_t>, wire::MicroBatchResult> results;
  std::vector<double> unit_norms;  // squared
  std::vector<int64_t> unit_ns;    // spent on reductions and update
  int64_t begun_ns = 0;
  bool save_after = false;
};

struct LossSum {
  double mean = 0;  // nats per target token
  bool finite = true;
};

// Of all its micro-batches.
LossSum SumLoss(const StepEntry& entry);

// The parts of what trains, how they are made, and what the job goes on from
// once they are there.
struct FirstWeights {
  wire::FileOpKind kind = wire::FileOpKind::kLoad;
  std::vector<FilePart> parts;
  std::shared_ptr<const StartPoint> start;
};

struct PendingFileOp {
  std::unique_ptr<FileTable> table;
  FilesLine::Ticket ticket{};
  std::function<void(absl::Status)> done;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_JOBS_RUNNER_WORK_H_
