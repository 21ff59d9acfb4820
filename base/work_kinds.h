// What a slot and a host operation do: one enum each for the scheduler, the
// daemon and the workers.
#ifndef ROUNDHOUSE_BASE_WORK_KINDS_H_
#define ROUNDHOUSE_BASE_WORK_KINDS_H_

#include <cstdint>

namespace roundhouse {

// kFused is the forward and the backward pass of the last stage in one slot;
// kEvaluate is its forward pass alone, to the loss.  The values of this and of
// HostOpKind cross process boundaries (base/wire): never renumber.
enum class SlotKind : uint32_t {
  kForward = 1,
  kFused = 2,
  kBackward = 3,
  kEvaluate = 4
};

// "forward", as metrics, traces and errors have it; "slot" for a number that is
// no kind.
constexpr const char* SlotKindName(SlotKind kind) {
  switch (kind) {
    case SlotKind::kForward:
      return "forward";
    case SlotKind::kFused:
      return "fused";
    case SlotKind::kBackward:
      return "backward";
    case SlotKind::kEvaluate:
      return "evaluate";
  }
  return "slot";
}

// kGather collects embedding rows, kReduce adds up gradients, kUpdate is the
// optimizer's.
enum class HostOpKind : uint32_t { kGather = 1, kReduce = 2, kUpdate = 3 };

// Activations go forward through the layers, gradients backward.  Activations
// that were not kept go forward once more, just before their layers' backward.
enum class PassDirection { kForward, kBackward, kAgain };

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_WORK_KINDS_H_
