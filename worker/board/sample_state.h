// Everything a device worker knows of one RunSample command.
//
//   waiting --compute thread takes it--> computing --> SampleDone or Failed
//
// Owner: the SlotTable while it waits, then the compute thread, which the board
// gives it to.  The copy queue's thread uses `abandoned` and `stats`.
#ifndef ROUNDHOUSE_WORKER_BOARD_SAMPLE_STATE_H_
#define ROUNDHOUSE_WORKER_BOARD_SAMPLE_STATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/wire/messages.h"
#include "worker/board/job_tables.h"
#include "worker/board/sample_plan.h"
#include "worker/transfer/copy_queue.h"

namespace roundhouse::worker {

// Commands that wait or compute; one more is refused.
inline constexpr size_t kMaxSampleCommands = 4;
// So often a training slot goes before a sample that could go.
inline constexpr int kMaxPassedOver = 8;

struct SampleState {
  SampleState(uint64_t attempt_in, wire::RunSample command_in,
              std::shared_ptr<const JobTables> tables_in, SamplePlan plan_in)
      : attempt(attempt_in),
        command(std::move(command_in)),
        tables(std::move(tables_in)),
        plan(std::move(plan_in)) {}

  bool due() const { return passed_over >= kMaxPassedOver; }

  const uint64_t attempt;
  const wire::RunSample command;
  const std::shared_ptr<const JobTables> tables;
  const SamplePlan plan;

  int passed_over = 0;    // by training slots
  bool resident = false;  // once taken: there is memory for all weights
  std::atomic<bool> abandoned{false};  // copies not yet made stay unmade
  CopyStats stats;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_BOARD_SAMPLE_STATE_H_
