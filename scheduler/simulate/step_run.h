// The simulation itself: what step_simulator.h says, for one or several jobs,
// event by event.
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_RUN_H_
#define ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_RUN_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "scheduler/plan/machine.h"
#include "scheduler/simulate/device_run.h"
#include "scheduler/simulate/job_run.h"
#include "scheduler/simulate/part_feed.h"
#include "scheduler/simulate/schedule.h"
#include "scheduler/simulate/step_simulator.h"
#include "scheduler/simulate/transfers.h"

namespace roundhouse {

class StepRun {
 public:
  // All references outlive it.
  StepRun(const Machine& machine, const std::vector<SimulatedJob>& jobs,
          const StepOptions& options, const std::vector<DeviceLoss>& losses,
          PartFeed& feed);

  // Once.
  Schedule Run();

 private:
  void TakeDecisions();
  int64_t NextEventNs();
  void CheckComplete() const;
  bool MayGiveUp() const;

  void AddPart(const PartFeed::Sent& sent);
  Transfer Bulk(WorkKind kind, const JobRun& job, PartRun& run, int layer,
                int64_t bytes) const;
  void HoldWeights(DeviceRun& device, const JobRun& job, PartRun& run,
                   int layer) const;
  void ReleaseWeights(int d);
  void ReleaseGradients(int d);

  void CountReadyIdle(int64_t until_ns);
  PartRun* NextNormal(const DeviceRun& device);
  int64_t WaitNs(int d, const PartRun& run);
  int64_t LinkNs(int64_t bytes) const;
  int64_t LapNs(int d, const PartRun& run) const;
  int64_t OpNs(int d, const PartRun& run, const PartRun::Op& op) const;
  PartRun* NextBackfill(int d, int64_t wait_ns);
  PartRun* NextToCompute(int d);
  bool MayOvertake(const PartRun& run);
  void StartCompute(int d);
  void RecordCompute(int d, const JobRun& job, const PartRun& run);
  void EndCompute(int d);
  void NoteComputed(const JobRun& job, const Part& part);
  void PartIsDone(int number);

  void QueueUploads(int d);
  void EndTransfer(const Transfers::Ended& ended);
  void ActivationIsDown(const Transfer& transfer);
  void SumsAreDown(DeviceRun& device, const Transfer& transfer);
  void StartHostWork(JobRun& job);
  void HostWorkIsDone(const Transfer& transfer);

  void LoseDevice(int d);
  void Withdraw(int number);
  void MarkLost(const PartRun& run);

  const Machine& machine_;
  const StepOptions& options_;
  PartFeed& feed_;
  std::deque<DeviceLoss> losses_;  // to come, by time
  Schedule schedule_;
  Transfers transfers_;
  std::vector<std::unique_ptr<JobRun>> jobs_;
  std::vector<DeviceRun> devices_;
  // Per part of all jobs.
  std::vector<JobRun*> job_of_;
  std::vector<int> device_of_;  // -1: not sent, or done
  std::vector<int> down_left_;  // results on their way to host memory
  // Per job.
  std::vector<int> parts_left_;         // not done
  std::vector<int64_t> backfill_rank_;  // added to its transfers' ranks
  bool any_backfill_ = false;           // sent so far
  // For StepOptions::give_up_ns.  Compute at speed 1 that has not begun.
  double compute_ns_ = 0;  // all of it
  double compute_left_ns_ = 0;
  int first_step_left_ = 0;  // parts not computed, where there are more steps
  double give_up_after_ns_ = std::numeric_limits<double>::infinity();
  const double total_speed_;
  int64_t compute_end_ns_ = 0;  // the next one, as of NextEventNs
  int attempts_ = 0;
  int64_t sequence_ = 0;  // of parts sent
  int64_t now_ns_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_SIMULATE_STEP_RUN_H_
