#include "scheduler/simulate/device_run.h"

#include <algorithm>

namespace roundhouse {

void DeviceLane::AdmitTurns() {
  const int64_t window_end = turns_done + kTurnWindow;
  for (const SentPart& sent : parts) {
    if (sent.first_turn >= window_end) return;
    const int64_t end =
        std::min(window_end, sent.first_turn + sent.run->turn_count());
    turns_admitted = std::max(turns_admitted, sent.first_turn);
    for (; turns_admitted < end; ++turns_admitted) {
      const auto turn = static_cast<int>(turns_admitted - sent.first_turn);
      for (const Boundary& boundary : sent.run->Inputs(turn)) {
        uploads.push_back({sent.run, turn, sent.first_rank + turn, boundary});
      }
    }
  }
}

void DeviceLane::Forget(const PartRun& run) {
  const auto its = [&run](const auto& entry) { return entry.run == &run; };
  std::erase_if(parts, its);
  uploads.erase(std::remove_if(uploads.begin(), uploads.end(), its),
                uploads.end());
  std::erase_if(held_gradients, its);
  std::erase_if(sums, its);
  // Nobody's turn is left to count.
  if (parts.empty()) turns_done = turns_sent;
  AllowSums();
}

}  // namespace roundhouse
