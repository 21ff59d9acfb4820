// Where one device's time went: every nanosecond is compute, bubble (a job has
// work and the device computes nothing), idle (none has) or fenced (the device
// is out of use); and which cause each bubble has.
//
// Told by the device's worker in the order in which it computes: Started, then
// Computed for each micro-batch.  Between two slots time is accounted as it
// passes (Publish, at the latest a second), its cause once the next slot says
// it; within a slot at the next micro-batch.  So the states sum to the wall
// time accounted so far, and the causes to the bubbles.
//
// Thread-compatible; times are CLOCK_MONOTONIC nanoseconds.
#ifndef ROUNDHOUSE_SERVER_OBSERVE_DEVICE_LEDGER_H_
#define ROUNDHOUSE_SERVER_OBSERVE_DEVICE_LEDGER_H_

#include <cstdint>
#include <deque>

#include "base/wire/wait_cause.h"

namespace roundhouse {

struct DeviceTimes {
  int64_t compute_ns = 0;
  int64_t bubble_ns = 0;
  int64_t idle_ns = 0;
  int64_t fenced_ns = 0;
  wire::WaitTimes bubble_causes_ns = {};
  // The part of compute_ns in which slots of one job were computed while
  // another's lacked its inputs.
  int64_t filled_bubble_ns = 0;
};

class DeviceLedger {
 public:
  explicit DeviceLedger(int64_t now_ns) : accounted_ns_(now_ns) {}

  // Whether any job has work.
  void SetBusy(bool busy, int64_t now_ns);
  // The device is out of use, or in use again.
  void Fence(int64_t now_ns);
  void Unfence(int64_t now_ns);

  // A computation begins; `waits` is why not earlier.
  void Started(int64_t at_ns, const wire::WaitTimes& waits, bool fills_bubble);
  // It went on until `at_ns`, but for `waits`.
  void Computed(int64_t at_ns, const wire::WaitTimes& waits);
  // The same, and is over.
  void Ended(int64_t at_ns, const wire::WaitTimes& waits);
  // A backfill slot was computed meanwhile, or between two slots.
  void Backfilled(int64_t began_ns, int64_t ended_ns, bool fills_bubble);
  // What it was computing, if anything, was given up or died with its worker.
  void GaveUp(int64_t now_ns);

  // Waiting is accounted until `now_ns`: a computation that is told later and
  // began before that counts from there on only.
  void PassTime(int64_t now_ns);
  // Until when time is in total().
  int64_t accounted_ns() const { return accounted_ns_; }
  // What came since the last call, after PassTime; for counters.
  DeviceTimes TakeNew(int64_t now_ns);

  const DeviceTimes& total() const { return total_; }
  // The times of the last `window_ns` before the last TakeNew.
  DeviceTimes Window(int64_t window_ns) const;
  // bubble / (compute + bubble) of that; 0 without either.
  double BubbleRatio(int64_t window_ns) const;

 private:
  struct Sample {
    int64_t at_ns = 0;
    DeviceTimes total;
  };

  int64_t Advance(int64_t to_ns);
  void AccountWaiting(int64_t now_ns);
  void AccountComputing(int64_t ns);
  void GiveCauses(const wire::WaitTimes& waits);

  int64_t accounted_ns_;
  bool busy_ = false;
  bool fenced_ = false;
  bool computing_ = false;
  bool fills_bubble_ = false;
  int64_t uncaused_ns_ = 0;    // of the bubble time: what for is not known yet
  int64_t backfilled_ns_ = 0;  // in waits of the slot that is computed
  DeviceTimes total_;
  DeviceTimes taken_;
  std::deque<Sample> samples_;  // one a TakeNew, at most kMaxSamples
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_OBSERVE_DEVICE_LEDGER_H_
