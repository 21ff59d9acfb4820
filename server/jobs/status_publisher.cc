#include "server/jobs/status_publisher.h"

#include <set>
#include <utility>

#include "base/clock.h"
#include "base/version.h"
#include "server/jobs/running_job.h"
#include "server/store/store_records.h"

namespace roundhouse {
namespace {

StatusJob StatusOf(const RunningJob& run, double share) {
  const JobProgress& progress = run.progress();
  return {.id = run.id(),
          .color = run.color(),
          .state = run.state(),
          .step = progress.step,
          .total_steps = progress.total_steps,
          .epoch = progress.epoch,
          .tokens_per_second = progress.tokens_per_second,
          .share = share,
          .expert_load = progress.expert_load,
          .eta = progress.eta,
          .losses = run.losses().points(),
          .validation_losses = run.validation_losses().points()};
}

}  // namespace

int StatusPublisher::ChooseColor(const std::string& id,
                                 const RunningJobs& running) {
  std::set<int> taken;
  for (const auto& [other, run] : running.jobs()) taken.insert(run->color());
  return ChooseJobColor(JobNumber(id).value_or(0), taken);
}

void StatusPublisher::ShowEnded(const std::string& id, int color,
                                JobState state, JobReason reason) {
  if (state != JobState::kPaused && !IsFinal(state)) return;
  HideEnded(id);
  ended_.push_back({.id = id,
                    .color = color,
                    .state = state,
                    .reason = reason,
                    .ended = WallTime()});
  if (ended_.size() > kMaxShownEnded) ended_.pop_front();
}

void StatusPublisher::HideEnded(const std::string& id) {
  std::erase_if(ended_, [&](const StatusEnded& job) { return job.id == id; });
}

void StatusPublisher::Publish(const Now& now) const {
  if (board_ == nullptr) return;
  StatusSnapshot snapshot{
      .time = WallTime(),
      .now_ns = MonotonicNs(),
      .version = kVersion,
      .start_time = start_time_,
      .stopping = now.stopping,
      .max_running_jobs = max_running_jobs_,
      .host_used_bytes = static_cast<int64_t>(host_used_bytes_.load()),
      .host_limit_bytes = static_cast<int64_t>(host_limit_bytes_),
      .devices = now.running.devices().Status(),
      .queue_count = static_cast<int64_t>(now.queue.size()),
      .validating = static_cast<int64_t>(now.validating),
      .ended = {ended_.begin(), ended_.end()}};
  for (StatusDevice& device : snapshot.devices) {
    device.out_as = now.keeper.WordOf(device.index);
  }
  for (const auto& [id, run] : now.running.jobs()) {
    snapshot.jobs.push_back(StatusOf(*run, now.running.devices().Share(id)));
  }
  for (const JobQueue::Queued* job :
       now.queue.InOrder(now.turn_of, kMaxShownQueue)) {
    snapshot.queue.push_back({job->id, job->since});
  }
  board_->Publish(std::move(snapshot));
}

}  // namespace roundhouse
