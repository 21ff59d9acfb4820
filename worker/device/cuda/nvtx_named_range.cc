#include <cinttypes>
#include <cstdio>

#include "nvtx3/nvToolsExt.h"
#include "worker/device/named_range.h"

namespace roundhouse::worker {

NamedRange::NamedRange(const char* what, uint32_t first_layer,
                       uint32_t last_layer, int32_t micro_batch) {
  char name[96];
  if (micro_batch < 0) {
    std::snprintf(name, sizeof(name), "%s %" PRIu32 "-%" PRIu32, what,
                  first_layer, last_layer);
  } else {
    std::snprintf(name, sizeof(name), "%s %" PRIu32 "-%" PRIu32 " m%" PRId32,
                  what, first_layer, last_layer, micro_batch);
  }
  nvtxRangePushA(name);
}

NamedRange::~NamedRange() { nvtxRangePop(); }

}  // namespace roundhouse::worker
