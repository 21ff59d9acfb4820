#include "scheduler/simulate/device_run.h"

#include <algorithm>

#include "base/log.h"

namespace roundhouse {

void DeviceLane::AdmitLaps() {
  const int64_t window_end = laps_done + kLapWindow;
  for (const SentPart& sent : parts) {
    if (sent.first_lap >= window_end) return;
    const int64_t end =
        std::min(window_end, sent.first_lap + sent.run->lap_count());
    laps_admitted = std::max(laps_admitted, sent.first_lap);
    for (; laps_admitted < end; ++laps_admitted) {
      const auto lap = static_cast<int>(laps_admitted - sent.first_lap);
      for (const Boundary& boundary : sent.run->Inputs(lap)) {
        uploads.push_back({sent.run, lap, sent.first_rank + lap, boundary});
      }
    }
  }
}

void DeviceLane::SumsDown(const PartRun& run) {
  const auto its =
      std::find_if(sums.begin(), sums.end(),
                   [&run](const Sums& entry) { return entry.run == &run; });
  ROUNDHOUSE_CHECK(its != sums.end());
  --its->layers_left;
  while (!sums.empty() && sums.front().layers_left == 0) sums.pop_front();
  AllowSums();
}

void DeviceLane::Forget(const PartRun& run) {
  const auto its = [&run](const auto& entry) { return entry.run == &run; };
  std::erase_if(parts, its);
  uploads.erase(std::remove_if(uploads.begin(), uploads.end(), its),
                uploads.end());
  std::erase_if(held_gradients, its);
  std::erase_if(sums, its);
  if (parts.empty()) {  // nobody's lap is left to count
    laps_done = laps_sent;
  } else {  // the next part's laps follow those that are left
    laps_sent = parts.back().first_lap + parts.back().run->lap_count();
    laps_admitted = std::min(laps_admitted, laps_sent);
  }
  AllowSums();
}

}  // namespace roundhouse
