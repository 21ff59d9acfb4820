// What a mask's kernel needs to know of it (dropout.h).  For nvcc, too.
#ifndef ROUNDHOUSE_WORKER_MODEL_MASK_NUMBERS_H_
#define ROUNDHOUSE_WORKER_MODEL_MASK_NUMBERS_H_

#include <cstdint>

namespace roundhouse::worker {

struct MaskNumbers {
  uint32_t threshold = 0;  // numbers below it are dropped
  float kept = 1;          // factor
  uint32_t site[3] = {};   // of the matrix's input in its micro-batch
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_MASK_NUMBERS_H_
