// Engine: what the status page shows.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "base/version.h"
#include "server/jobs/engine.h"

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
          .eta = progress.eta,
          .losses = run.losses().points(),
          .validation_losses = run.validation_losses().points()};
}

}  // namespace

int Engine::ChooseColor(const std::string& id) const {
  std::set<int> taken;
  for (const auto& [other, run] : running_) taken.insert(run->color());
  return ChooseJobColor(JobNumber(id).value_or(0), taken);
}

void Engine::ShowEnded(const std::string& id, int color, JobState state,
                       JobReason reason) {
  if (state != JobState::kPaused && !IsFinal(state)) return;
  std::erase_if(ended_, [&](const StatusEnded& job) { return job.id == id; });
  ended_.push_back({.id = id,
                    .color = color,
                    .state = state,
                    .reason = reason,
                    .ended = absl::Now()});
  if (ended_.size() > kMaxShownEnded) ended_.pop_front();
}

void Engine::PublishStatus() {
  if (options_.status == nullptr) return;
  StatusSnapshot snapshot{
      .time = absl::Now(),
      .now_ns = MonotonicNs(),
      .version = kVersion,
      .start_time = start_time_,
      .stopping = draining_,
      .max_running_jobs = options_.max_running_jobs,
      .host_used_bytes = static_cast<int64_t>(arena_used_bytes_),
      .host_limit_bytes = static_cast<int64_t>(arena_.limit_bytes()),
      .devices = devices_.Status(),
      .queue_count = static_cast<int64_t>(queue_.size()),
      .validating = static_cast<int64_t>(validation_lanes_.size() +
                                         validation_order_.ready_count()),
      .ended = {ended_.begin(), ended_.end()}};
  for (const auto& [id, run] : running_) {
    snapshot.jobs.push_back(StatusOf(*run, devices_.Share(id)));
  }
  const size_t shown = std::min(queue_.size(), kMaxShownQueue);
  for (size_t i = 0; i < shown; ++i) {
    snapshot.queue.push_back({queue_[i].id, queue_[i].since});
  }
  options_.status->Publish(std::move(snapshot));
}

}  // namespace roundhouse
