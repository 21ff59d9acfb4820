// A model that takes the time of its layers and computes nothing.
//
// Its loss is a formula: 1 + 1 / (1 + step) nats for each of the micro-batch's
// tokens, padding included.  Gradients are named to their sink, which finds no
// numbers.  Drawn tokens are all of id 0 unless a temperature spreads them.
#ifndef ROUNDHOUSE_TESTS_FAKES_FAKE_MODEL_H_
#define ROUNDHOUSE_TESTS_FAKES_FAKE_MODEL_H_

#include <vector>

#include "tests/fakes/fake_device.h"
#include "tests/fakes/layer_costs.h"
#include "worker/model/generation.h"
#include "worker/slot/slot_computation.h"

namespace roundhouse::fakes {

// In nats per token.
double FakeLoss(uint64_t step);

// Runs that occupy the device's compute engine as `costs` say; device and costs
// outlive them, here and below.  A run of a job with another number of layers
// than `costs` is INVALID_ARGUMENT.  With layer recomputation a layer's
// backward costs its recompute once more.
worker::StageRunFactory FakeStageRuns(FakeDevice& device,
                                      const std::vector<LayerCost>& costs);

// Each pass costs a forward of all layers, however many tokens it adds.
worker::GenerationFactory FakeGenerations(FakeDevice& device,
                                          const std::vector<LayerCost>& costs);

}  // namespace roundhouse::fakes

#endif  // ROUNDHOUSE_TESTS_FAKES_FAKE_MODEL_H_
