#include "scheduler/simulate/device_run.h"

namespace roundhouse {

void DeviceLane::Forget(const PartRun& run) {
  const auto its = [&run](const auto& entry) { return entry.run == &run; };
  std::erase_if(parts, its);
  std::erase_if(uploads, its);
  std::erase_if(held_gradients, its);
  std::erase_if(sums, its);
  // Nobody's turn is left to count.
  if (parts.empty()) turns_done = turns_sent;
  AllowSums();
}

}  // namespace roundhouse
