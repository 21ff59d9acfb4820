// How far ours is from what real transformers and PEFT computed.
#ifndef ROUNDHOUSE_TESTS_PARITY_FIGURES_H_
#define ROUNDHOUSE_TESTS_PARITY_FIGURES_H_

#include <cmath>
#include <string>
#include <vector>

namespace roundhouse::parity {

// docs/design/numerics.md, "Parity".
inline constexpr double kTolerance = 1e-5;  // fp32 logits, losses, gradients
inline constexpr double kUpdateTolerance = 1e-3;  // 10 AdamW steps
// The limit for updates, relative to transformers' own distance. Its distance
// is one draw of the noise; ours, on another CPU that rounds otherwise, is
// another.
inline constexpr double kNoiseRatio = 2;
inline constexpr double kBf16Ratio = 1.5;  // of transformers' own error
// The same limit for fp16. It rounds an eighth as much, and most figures are an
// eighth of those of bf16. Where a gradient is ill-conditioned (the adapter
// over mistral_untied), the draws of the noise are further apart.
inline constexpr double kFp16Ratio = kBf16Ratio / 2;
inline constexpr double kLearningRate = 1e-3;

// Prints the figure beside its limit and expects it not to be above; `own` is
// how much transformers differs from itself (its eager attention from its SDPA,
// packed rows from padded ones).  REQUIRES: a
// test is running.
void Check(const std::string& what, double figure, double limit,
           double own = std::nan(""));

// |value - reference| / |reference|, as L2 norms.  Expects equal sizes and a
// reference that is not zero.
double Relative(const std::vector<float>& value,
                const std::vector<float>& reference);

}  // namespace roundhouse::parity

#endif  // ROUNDHOUSE_TESTS_PARITY_FIGURES_H_
