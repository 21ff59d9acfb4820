// What training a model on given devices comes to, before there are any: the
// plan that the width-aware search finds, its simulated step, bubbles by cause,
// memory, and the longest sequence that fits.
//
// Rounds of a step have at most kAutoRoundMicroBatches micro-batches, as a
// job's do; a step's time is the simulated round's in proportion.  With
// global-norm clipping the update waits for the last reduction and layer 0 goes
// first, without it a layer is updated once it is reduced, where a step is one
// round in one pass with its reduction (Updates::kOnePass).  The next step's
// forward starts under it: what counts is how much later than without it the
// next step's uploads can start, in one pass also what a second step takes
// behind the first.  There the plan is that of consecutive steps, else of an
// isolated round.
//
// Pure function; thread-safe; deterministic.  May take seconds.
#ifndef ROUNDHOUSE_SCHEDULER_ESTIMATE_STEP_FORECAST_H_
#define ROUNDHOUSE_SCHEDULER_ESTIMATE_STEP_FORECAST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/estimate/bubble_causes.h"
#include "scheduler/estimate/device_presets.h"
#include "scheduler/estimate/host_bytes.h"
#include "scheduler/estimate/longest_sequence.h"
#include "scheduler/estimate/training_costs.h"
#include "scheduler/simulate/schedule.h"

namespace roundhouse {

inline constexpr int64_t kMaxPlannedMicroBatches = 4096;  // of a step

struct ForecastQuestion {
  // micro_batch_sequences 0: the job file's `auto`, less where that does not
  // fit a device.
  TrainingSetup setup;
  std::vector<DevicePreset> devices;
  int64_t batch_sequences = 8;
  int64_t host_memory_bytes = 0;  // 0: whatever it takes
  double host_rate = 200;         // GB/s that host memory moves in all
  Accumulation accumulation = Accumulation::kFp32;
};

struct DeviceForecast {
  DevicePreset preset = {};
  int64_t used_bytes = 0;  // the most at a time, the reserve included
  DeviceStepTime time;     // of a step
};

struct StepForecast {
  // Bytes that are missing; 0: it fits.
  int64_t device_missing_bytes = 0;  // of the device that lacks most
  int64_t host_missing_bytes = 0;
  bool feasible() const {
    return device_missing_bytes == 0 && host_missing_bytes == 0;
  }

  int64_t micro_batch_sequences = 0;
  int64_t micro_batches = 0;        // of a step
  int64_t round_micro_batches = 0;  // of a round
  HostMemory host;
  // What host.boundaries would be if memory delayed no slot; where it is more,
  // slots are sent less far ahead.
  int64_t wanted_boundary_bytes = 0;
  InputCounts inputs;
  // The need of the device that lacks most, by the plan that needs least.
  int64_t device_needed_bytes = 0;
  LongestSequence longest;  // one sequence a micro-batch, one block a stage

  // Where it fits the devices; else empty and 0.
  std::string plan;
  int64_t step_ns = 0;
  int64_t tokens_per_step = 0;
  double tokens_per_second() const;
  std::vector<DeviceForecast> devices;
  BubbleCauses bubble;  // of all devices
  double bubble_percent() const;
  Schedule round;  // simulated; in one pass with the updates
};

// INVALID_ARGUMENT naming what cannot be planned for.
absl::StatusOr<StepForecast> ForecastStep(const ForecastQuestion& question);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_ESTIMATE_STEP_FORECAST_H_
