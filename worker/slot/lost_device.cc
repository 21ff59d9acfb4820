#include "worker/slot/lost_device.h"

#include <unistd.h>

#include <cstdio>

#include "base/log.h"

namespace roundhouse::worker {

void EndProcessIfLost(const absl::Status& status) {
  if (!absl::IsAborted(status)) return;
  RH_LOG(kError) << status.message() << "; this process ends";
  std::fflush(nullptr);
  _exit(1);
}

}  // namespace roundhouse::worker
