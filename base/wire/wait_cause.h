// Why a device that could have computed did not: which input of what it
// computed next came last.
#ifndef ROUNDHOUSE_BASE_WIRE_WAIT_CAUSE_H_
#define ROUNDHOUSE_BASE_WIRE_WAIT_CAUSE_H_

#include <array>
#include <cstdint>

namespace roundhouse::wire {

enum class WaitCause : uint32_t {
  kH2D = 0,         // on its way up
  kD2H = 1,         // a buffer that was on its way down
  kDependency = 2,  // another slot's output
  kOptimizer = 3,   // reductions and updates of weights
  kData = 4,        // embedding rows of the next tokens
  kDispatch = 5,    // the slot itself
  kMemory = 6,      // device memory that other slots held
};
inline constexpr int kWaitCauses = 7;

// Nanoseconds by cause.
using WaitTimes = std::array<int64_t, kWaitCauses>;

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_WAIT_CAUSE_H_
