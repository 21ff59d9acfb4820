// What a slot and a host operation do: one enum each for the scheduler, the
// daemon and the workers.
#ifndef ROUNDHOUSE_BASE_WORK_KINDS_H_
#define ROUNDHOUSE_BASE_WORK_KINDS_H_

#include <cstdint>

namespace roundhouse {

// Values cross process boundaries (base/wire): never renumber.

// kFused is the forward and the backward pass of the last stage in one slot;
// kEvaluate is its forward pass alone, to the loss.
enum class SlotKind : uint32_t {
  kForward = 1,
  kFused = 2,
  kBackward = 3,
  kEvaluate = 4
};

// kGather collects embedding rows, kReduce adds up gradients, kUpdate is the
// optimizer's.
enum class HostOpKind : uint32_t { kGather = 1, kReduce = 2, kUpdate = 3 };

// Activations go forward through the layers, gradients backward.
enum class PassDirection { kForward, kBackward };

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_WORK_KINDS_H_
