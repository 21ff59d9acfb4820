// What a job's steps tell of devices, workers and times, while they run: for
// metrics, traces and the status page, never for the job itself.
//
// All calls come on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_STEPS_STEP_TELEMETRY_H_
#define ROUNDHOUSE_SERVER_STEPS_STEP_TELEMETRY_H_

#include <cstdint>

#include "base/ids.h"
#include "base/wire/messages.h"
#include "scheduler/dispatch/dispatcher.h"
#include "server/observe/trace_recorder.h"

namespace roundhouse {

class StepTelemetry {
 public:
  virtual ~StepTelemetry() = default;
  // A slot of `step` goes to its device, as this attempt.
  virtual void OnSlotSent(uint64_t attempt, const RunSlotAction& slot,
                          int64_t step) = 0;
  // Before it is sent; may change what else the worker tells of it.
  virtual void OnSlotCommand(wire::RunSlot& command) = 0;
  // From the event that made a slot possible to its worker's having it.
  virtual void OnDispatchLatency(double seconds) = 0;
  // From the moment when an urgent job could go to its next slot's beginning.
  virtual void OnUrgentBegins(double seconds) = 0;
  virtual void OnSlot(DeviceId device, SlotKind kind,
                      const wire::SlotDone& done) = 0;
  // A slot that `device` had when its worker died was sent again.
  virtual void OnSlotReplayed(DeviceId device) = 0;
  // The worker could not do it.
  virtual void OnSlotFailed(DeviceId device) = 0;
  virtual void OnHostOp(const HostOpTimes& work) = 0;
  // The reductions of one unit in one step and its update, added up.
  virtual void OnUnitUpdated(double seconds) = 0;
  // Units' sums that wide slots added up between their devices, and that they
  // were to.
  virtual void OnSumExchanges(int64_t exchanged, int64_t failed) = 0;
  // The step's last update is made; JobEvents::OnStep came before.
  virtual void OnStepDone(int64_t step) = 0;
  // From the death of a worker that had slots to its device's next slot.
  virtual void OnRecovered(DeviceId device, double seconds) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STEPS_STEP_TELEMETRY_H_
