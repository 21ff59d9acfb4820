// The optimizer's update of one chunk of one parameter, through LibTorch's
// fused CPU kernel.  The sequential reference and the host worker both call it,
// with the same chunks (base/reduction.h), so that chunk tails are alike.
//
// Thread-safe; runs on LibTorch's threads of the calling thread.
#ifndef ROUNDHOUSE_WORKER_MODEL_ADAMW_H_
#define ROUNDHOUSE_WORKER_MODEL_ADAMW_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"

namespace roundhouse::worker {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // where ParameterSpec says so
};

// What is the same for every chunk of a step.
struct AdamWStep {
  AdamWOptions options;
  double learning_rate = 1e-3;
  int64_t step = 1;  // number of this update, from 1
};

// `count` elements of one parameter, fp32.
struct AdamWChunk {
  const float* gradient = nullptr;  // final: summed, clipped
  int64_t count = 0;
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  bool weight_decay = false;
};

// Updates the chunk's master and moments in place (decoupled weight decay, bias
// correction by step.step).
absl::Status AdamWUpdate(const AdamWStep& step, const AdamWChunk& chunk);

// The compute copy of `count` masters: rounded to nearest even in `dtype`.
absl::Status CastMaster(const float* master, int64_t count, DType dtype,
                        void* compute);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_ADAMW_H_
