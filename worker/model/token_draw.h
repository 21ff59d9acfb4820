// The next token out of a model's logits.
//
// Draws are counted, not taken from a state (base/philox.h): the number that
// decides is a function of seed, sequence and index of the drawn token, so it
// is the same however a sample is cut into commands and whoever computes them.
//
//   words  = Philox4x32-10(counter {index, sequence, 0, 0},
//                          key     {seed low, seed high ^ "samp"})
//   number = the upper 53 bits of words 0 and 1, in [0, 1)
//
// Torch-free; pure.
#ifndef ROUNDHOUSE_WORKER_MODEL_TOKEN_DRAW_H_
#define ROUNDHOUSE_WORKER_MODEL_TOKEN_DRAW_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace roundhouse::worker {

struct DrawKey {
  uint64_t seed = 0;
  uint32_t sequence = 0;  // its number in the sample
  uint32_t index = 0;     // of the token among those drawn, from 0
};

// A token id below `vocab_size`.  Temperature 0: that of the largest logit, the
// lowest among equals; else drawn with probabilities softmax(logits /
// temperature), which are computed in fp64.
// FAILED_PRECONDITION: a logit is not finite; names its token.
// REQUIRES: vocab_size > 0; temperature >= 0.
absl::StatusOr<int32_t> DrawToken(const float* logits, int64_t vocab_size,
                                  double temperature, const DrawKey& key);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_TOKEN_DRAW_H_
