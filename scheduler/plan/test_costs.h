// A small model for this folder's tests.
#ifndef ROUNDHOUSE_SCHEDULER_PLAN_TEST_COSTS_H_
#define ROUNDHOUSE_SCHEDULER_PLAN_TEST_COSTS_H_

#include "scheduler/plan/model_costs.h"

namespace roundhouse {

// `layers` blocks of 1 ms forward and 2 ms backward, a head of 3 and 4 ms,
// hops of 0.1 ms; 21 MB of weights (1 ms on a link) a block, 42 MB the head.
inline ModelCosts SmallModel(int layers) {
  ModelCosts costs;
  costs.name = "small";
  costs.layers = layers;
  costs.forward_ns = 1'000'000;
  costs.backward_ns = 2'000'000;
  costs.head_forward_ns = 3'000'000;
  costs.head_backward_ns = 4'000'000;
  costs.hop_ns = 100'000;
  costs.layer_bytes = costs.layer_gradient_bytes = 21'000'000;
  costs.head_bytes = costs.head_gradient_bytes = 42'000'000;
  costs.tokens = 64;
  costs.hidden = 128;
  costs.heads = costs.kv_heads = 4;
  costs.head_dim = 32;
  costs.inner = 512;
  costs.experts_per_token = 1;
  return costs;
}

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SCHEDULER_PLAN_TEST_COSTS_H_
