#include "worker/board/compute_clock.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace roundhouse::worker {

absl::Status ComputeClock::BeginMicroBatch() {
  pending_layers_.clear();
  pending_waits_.clear();
  ASSIGN_OR_RETURN(begin_, stream_.MarkTime());
  begin_ns_ = MonotonicNs();
  return absl::OkStatus();
}

absl::Status ComputeClock::EndLayer(uint32_t layer, PassDirection direction,
                                    Mark began) {
  ASSIGN_OR_RETURN(Mark ended, stream_.MarkTime());
  pending_layers_.push_back(
      {layer, direction, std::move(began), std::move(ended)});
  return absl::OkStatus();
}

void ComputeClock::NoteWait(Mark queued, int64_t began_ns, int64_t ended_ns,
                            std::vector<Milestone> milestones) {
  pending_waits_.push_back(
      {std::move(queued), began_ns, ended_ns, std::move(milestones)});
}

absl::StatusOr<int64_t> ComputeClock::EndMicroBatch(bool counts,
                                                    wire::WaitTimes& waits) {
  RETURN_IF_ERROR(Drain(stream_));
  int64_t waited_ns = 0;
  for (const PendingWait& wait : pending_waits_) {
    ASSIGN_OR_RETURN(const int64_t since_ns, wait.queued->NsSince(*begin_));
    const int64_t idle_ns = std::max(wait.began_ns, begin_ns_ + since_ns);
    if (idle_ns >= wait.ended_ns) continue;
    if (!wait.milestones.empty()) {
      SplitWait(idle_ns, wait.ended_ns, wait.milestones, waits);
    }
    waited_ns += wait.ended_ns - idle_ns;
  }
  for (const PendingLayer& one : pending_layers_) {
    if (!counts) break;
    ASSIGN_OR_RETURN(const int64_t ns, one.ended->NsSince(*one.began));
    layers_[one.layer - first_layer_]
        .passes_ns[static_cast<int>(one.direction)] += ns;
  }
  return waited_ns;
}

std::vector<wire::LayerTime> ComputeClock::LayerTimes(uint32_t samples) const {
  std::vector<wire::LayerTime> times;
  for (const LayerNs& layer : layers_) {
    times.push_back(
        {.layer = first_layer_ + static_cast<uint32_t>(times.size()),
         .samples = samples,
         .forward_ns = layer.passes_ns[0] / samples,
         .backward_ns = layer.passes_ns[1] / samples});
  }
  return times;
}

absl::Status Drain(Stream& stream) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Event> event, stream.Record());
  return event->Wait();
}

}  // namespace roundhouse::worker
