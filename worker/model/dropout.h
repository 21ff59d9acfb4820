// Dropout whose masks anyone can compute again (docs/design/numerics.md).
//
// Each element of a matrix's input has a 32-bit random number, which is a
// function of these values and nothing else:
//
//   seed, step, micro-batch of the step, layer, matrix, row, token, feature
//
// where row and token are the element's in its micro-batch.  So a mask is the
// same in a forward, fused or recomputing slot, for any stage boundaries,
// devices and threads, and however far rows are padded.
//
//   site   = Philox4x32-10(counter {step, micro_batch, layer, matrix},
//                          key     {seed low, seed high ^ "drop"})
//   number = word feature % 4 of
//            Philox4x32-10(counter {feature / 4, token, row, site[2]},
//                          key     {site[0], site[1]})
//
// An element is dropped when its number is below floor(probability * 2^32);
// what is kept is multiplied with fp32 1 / (1 - probability), as torch's
// dropout does.  Torch-free; pure.
#ifndef ROUNDHOUSE_WORKER_MODEL_DROPOUT_H_
#define ROUNDHOUSE_WORKER_MODEL_DROPOUT_H_

#include <cstdint>

#include "base/model/parameters.h"
#include "base/philox.h"
#include "worker/model/mask_numbers.h"

namespace roundhouse::worker {

// Which micro-batch.  The words of a counter: all but the seed below 2^32.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;         // of the job, from 1
  uint64_t micro_batch = 0;  // of the step
};

// The masks of one matrix's input in one micro-batch.
class DropoutMask {
 public:
  // REQUIRES: 0 <= probability < 1.
  DropoutMask(double probability, const DropoutKey& key, int64_t layer,
              ParamRole matrix);

  // to[i] = from[i] * (0 or 1 / (1 - probability)) for the `features` elements
  // of one token; `to` may be `from`.
  void Apply(int64_t row, int64_t token, const float* from, float* to,
             int64_t features) const;

  // For a kernel that applies it elsewhere.
  MaskNumbers numbers() const {
    return {threshold_, kept_, {site_[0], site_[1], site_[2]}};
  }

 private:
  uint32_t threshold_;  // numbers below it are dropped
  float kept_;          // factor
  PhiloxBlock site_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_DROPOUT_H_
