// Test only: every slot, host operation, step and dispatch latency as a line
// of a file, for tests/bench.  Histograms are too coarse for its percentiles.
//
//   dispatch,LATENCY_NS
//   urgent,LATENCY_NS                  as preemption_latency_seconds
//   slot,DEVICE,STARTED,ENDED,WAIT,H2D,COMPUTE,D2H
//   layer,LAYER,FORWARD,BACKWARD       of a micro-batch, for each of the slot's
//                                      layers; forward slots have no BACKWARD
//   host,STARTED,ENDED
//   step,STEP,ENDED
//
// Numbers are nanoseconds; points in time are CLOCK_MONOTONIC.
// Thread-compatible; runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_TIMING_LOG_H_
#define ROUNDHOUSE_SERVER_OBSERVE_TIMING_LOG_H_

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/wire/messages.h"

namespace roundhouse {

// What comes after this many lines is left out, and a warning says so.
inline constexpr int64_t kMaxTimings = 4'000'000;

class TimingLog {
 public:
  // Replaces the file.  INVALID_ARGUMENT naming `path` when it can't.
  static absl::StatusOr<std::unique_ptr<TimingLog>> Create(
      const std::string& path);

  void AddDispatch(double seconds);
  void AddUrgent(double seconds);
  void AddSlot(int device, const wire::SlotDone& done);
  void AddHostOp(const wire::HostOpDone& done);
  // Flushes too: who follows the file sees each step.
  void AddStep(int64_t step, int64_t now_ns);

 private:
  explicit TimingLog(std::ofstream file) : file_(std::move(file)) {}
  bool Room();

  std::ofstream file_;
  int64_t lines_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_TIMING_LOG_H_
