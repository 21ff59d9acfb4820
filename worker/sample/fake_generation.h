// A GenerationRun without LibTorch, for tests of what is around it: cheap
// arithmetic in which every byte of input and weights and every token so far,
// by way of the cache, shows.  Like the real one's, a sequence's logits are its
// own; unlike them, to the bit.
#ifndef ROUNDHOUSE_WORKER_SAMPLE_FAKE_GENERATION_H_
#define ROUNDHOUSE_WORKER_SAMPLE_FAKE_GENERATION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "worker/model/generation.h"

namespace roundhouse::worker {

// Called on the compute thread at the start of each layer, the head's included;
// may block; an error is the layer's.
using FakeGenerationHook = std::function<absl::Status(
    int64_t layer, const std::vector<SequenceStep>& steps)>;

GenerationFactory FakeGenerations(FakeGenerationHook hook = nullptr);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_SAMPLE_FAKE_GENERATION_H_
