// A step's loss and gradients against transformers' own, whoever computed them.
#ifndef ROUNDHOUSE_TESTS_PARITY_STEP_CHECKS_H_
#define ROUNDHOUSE_TESTS_PARITY_STEP_CHECKS_H_

#include <functional>
#include <vector>

#include "base/dtype.h"
#include "tests/parity/goldens.h"
#include "tests/parity/subject.h"

namespace roundhouse::parity {

// Limits for bf16 and fp16, as shares of transformers' own error in bf16.
struct HalfRatios {
  double bf16 = 0;
  double fp16 = 0;

  double Of(DType dtype) const { return dtype == DType::kF16 ? fp16 : bf16; }
};

// Compares the token losses of step 0, [rows, row tokens].
void CheckTokenLosses(const Goldens& goldens, const std::vector<float>& losses,
                      DType dtype, const HalfRatios& ratios);

// Compares the gradients of every trained parameter in step 0. gradient(unit)
// is laid out as the unit's UnitSpec says and multiplied by `scale`.
void CheckGradients(const Subject& subject,
                    const std::function<const float*(int unit)>& gradient,
                    DType dtype, float scale, const HalfRatios& ratios);

}  // namespace roundhouse::parity

#endif  // ROUNDHOUSE_TESTS_PARITY_STEP_CHECKS_H_
