// Where each device's time went: every nanosecond is compute, bubble (an
// admitted job has work and the device computes nothing) or idle.
//
// Time is accounted when a slot ends and when a job starts or stops having
// work, so that the three always sum to the wall time accounted so far.
// Thread-compatible; times are CLOCK_MONOTONIC nanoseconds.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_DEVICE_LEDGER_H_
#define ROUNDHOUSE_SERVER_OBSERVE_DEVICE_LEDGER_H_

#include <cstdint>
#include <deque>

namespace roundhouse {

struct DeviceTimes {
  int64_t compute_ns = 0;
  int64_t bubble_ns = 0;
  int64_t idle_ns = 0;
};

class DeviceLedger {
 public:
  explicit DeviceLedger(int64_t now_ns) : accounted_ns_(now_ns) {}

  // A job begins or ceases to have work.
  void SetBusy(bool busy, int64_t now_ns);

  // A slot ended at `ended_ns`, `compute_ns` of it in computation.
  void AddSlot(int64_t ended_ns, int64_t compute_ns);

  // What came since the last call; for counters.
  DeviceTimes TakeNew(int64_t now_ns);

  const DeviceTimes& total() const { return total_; }
  // bubble / (compute + bubble) over the last `window_ns`; 0 without either.
  double BubbleRatio(int64_t window_ns) const;

 private:
  struct Sample {
    int64_t at_ns = 0;
    int64_t compute_ns = 0;  // totals
    int64_t bubble_ns = 0;
  };

  void AccountIdle(int64_t now_ns);

  int64_t accounted_ns_;
  bool busy_ = false;
  DeviceTimes total_;
  DeviceTimes taken_;
  std::deque<Sample> samples_;  // one a TakeNew, at most kMaxSamples
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_DEVICE_LEDGER_H_
