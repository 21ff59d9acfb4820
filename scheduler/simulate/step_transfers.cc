// StepRun: what goes up, what has come down, and the host work that follows.
#include "scheduler/simulate/step_run.h"

namespace roundhouse {

void StepRun::QueueUploads(int d) {
  for (DeviceLane& lane : devices_[d].lanes) {
    for (auto it = lane.uploads.begin(); it != lane.uploads.end();) {
      JobRun& job = *jobs_[it->run->place().job];
      // A part's first weights go before what it needs after its first lap.
      const bool later = it->lap > 0 && !it->run->first_weights();
      if (later || !job.InHost(it->boundary)) {
        ++it;
        continue;
      }
      Transfer transfer{WorkKind::kActivations,
                        it->boundary,
                        job.costs().BoundaryBytes(),
                        it->run,
                        it->lap,
                        it->rank + backfill_rank_[job.index()]};
      job.Stamp(job.RoundOf(it->run->part()), transfer);
      transfers_.Push(Transfers::Up(d), transfer);
      it = lane.uploads.erase(it);
    }
  }
}

void StepRun::EndTransfer(const Transfers::Ended& ended) {
  const Transfer& transfer = ended.transfer;
  if (transfer.run == nullptr) {
    HostWorkIsDone(transfer);
    return;
  }
  const int d = ended.channel / 2;
  const bool up = ended.channel % 2 == 0;
  devices_[d].changed = true;
  if (transfer.kind == WorkKind::kWeights) {
    if (transfer.last) transfer.run->WeightsArrived(transfer.boundary.layer);
    return;
  }
  if (up) {
    transfer.run->InputArrived(transfer.lap, transfer.boundary.direction);
    return;
  }
  if (transfer.kind == WorkKind::kActivations) {
    ActivationIsDown(transfer);
  } else {
    SumsAreDown(devices_[d], transfer);
  }
  const int number = transfer.run->place().number;
  if (--down_left_[number] == 0 && transfer.run->finished()) {
    PartIsDone(number);
  }
}

void StepRun::ActivationIsDown(const Transfer& transfer) {
  JobRun& job = *jobs_[transfer.job];
  job.InHost(transfer.boundary) = true;
  for (DeviceRun& device : devices_) {
    device.input_came |=
        device.lanes[transfer.job].MayUpload(transfer.boundary);
    if (jobs_.size() > 1) device.changed = true;  // A part may overtake.
  }
  if (transfer.boundary.layer > 0) return;
  job.host().RowsGradientDown(transfer.round);
  job.PublishNextRows();
}

void StepRun::SumsAreDown(DeviceRun& device, const Transfer& transfer) {
  JobRun& job = *jobs_[transfer.job];
  device.lanes[transfer.job].SumsDown(*transfer.run);
  job.NoteSumsDown(transfer.run->place().number, transfer.boundary.layer);
  job.host().ContributionsDown(transfer.round, transfer.boundary.layer);
  feed_.ContributionDown(transfer.run->place().number, transfer.boundary.layer);
  StartHostWork(job);
}

void StepRun::StartHostWork(JobRun& job) {
  for (const HostWork::Job& work : job.host().TakeJobs()) {
    Transfer transfer;
    transfer.kind = work.kind;
    transfer.boundary.layer = work.layer;
    transfer.boundary.direction = PassDirection::kBackward;
    transfer.bytes = work.bytes;
    transfer.rank = kBulkRank + backfill_rank_[job.index()];
    job.Stamp(work.round, transfer);
    // What the next step needs first.
    if (job.rounds().updates != Updates::kNone && options_.ideas.priorities) {
      const int layers = job.costs().layers + 1;
      transfer.rank += int64_t{work.round} * layers +
                       (work.layer == kHeadShare ? layers : work.layer);
    }
    transfers_.Push(transfers_.Host(), transfer);
  }
}

void StepRun::HostWorkIsDone(const Transfer& transfer) {
  JobRun& job = *jobs_[transfer.job];
  const int layer = transfer.boundary.layer;
  const bool reduced = transfer.kind == WorkKind::kReduce;
  const bool one_pass = job.host().InOnePass(layer);
  job.host().Done({transfer.kind, transfer.round, layer});
  // In one pass the operation goes on with the update.
  if (!reduced || !one_pass) {
    feed_.HostTaskDone({reduced ? HostOpKind::kReduce : HostOpKind::kUpdate,
                        transfer.job, transfer.round, layer});
  }
  StartHostWork(job);
  if (job.PublishNextRows()) {
    for (DeviceRun& device : devices_) device.changed = true;
  }
  for (int d = 0; d < machine_.device_count(); ++d) {
    if (reduced || one_pass) ReleaseGradients(d);
    if (!reduced) ReleaseWeights(d);
  }
}

}  // namespace roundhouse
