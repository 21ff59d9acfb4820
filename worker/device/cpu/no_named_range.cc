#include "worker/device/named_range.h"

namespace roundhouse::worker {

NamedRange::NamedRange(const char*, uint32_t, uint32_t, int32_t) {}
NamedRange::~NamedRange() = default;

}  // namespace roundhouse::worker
