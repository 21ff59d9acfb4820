// StepRun: devices that are lost, and parts that are given up.
#include "scheduler/simulate/step_run.h"

namespace roundhouse {

void StepRun::LoseDevice(int d) {
  for (int number = 0; number < static_cast<int>(device_of_.size()); ++number) {
    if (device_of_[number] == d) Withdraw(number);
  }
  feed_.DeviceLost(d);
}

void StepRun::Withdraw(int number) {
  JobRun& job = *job_of_[number];
  PartRun& run = job.run(number);
  DeviceRun& device = devices_[device_of_[number]];
  transfers_.Cancel(run);
  MarkLost(run);
  std::erase_if(device.held_weights, [&run](const Transfer& transfer) {
    return transfer.run == &run;
  });
  device.lanes[job.index()].Forget(run);
  if (device.guest == &run || (device.current == &run && !device.guest)) {
    device.op.reset();
    device.op_end_ns = TransferRates::kNever;
  }
  if (device.guest == &run) device.guest = nullptr;
  if (device.current == &run) device.current = nullptr;
  device.changed = true;
  device_of_[number] = -1;
  down_left_[number] = 0;
  job.Restart(number, ++attempts_);
}

// All that an attempt did, but for the results that are in host memory: others
// may have read them.
void StepRun::MarkLost(const PartRun& run) {
  JobRun& job = *job_of_[run.place().number];
  const HostWork::Rounds& rounds = job.rounds();
  for (Interval& interval : schedule_.intervals) {
    if (interval.attempt != run.place().attempt) continue;
    if (interval.kind == WorkKind::kGradients &&
        job.SumsDown(run.place().number, interval.layer_begin)) {
      continue;
    }
    if (interval.kind == WorkKind::kActivations &&
        interval.resource.type == ResourceType::kD2h) {
      const int first = interval.step * rounds.per_step * rounds.micro_batches;
      if (job.InHost({interval.layer_begin, interval.direction,
                      first + interval.micro_batch})) {
        continue;
      }
    }
    interval.lost = true;
    if (interval.end_ns > now_ns_) interval.end_ns = now_ns_;
  }
}

}  // namespace roundhouse
