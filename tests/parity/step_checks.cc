#include "tests/parity/step_checks.h"

#include <string>

#include "tests/parity/figures.h"

namespace roundhouse::parity {

void CheckTokenLosses(const Goldens& goldens, const std::vector<float>& losses,
                      DType dtype, const HalfRatios& ratios) {
  const double error = Relative(losses, goldens.Floats("token_loss"));
  if (dtype == DType::kF32) {
    Check("token losses, relative L2", error, kTolerance,
          goldens.Scalar("eager.token_loss"));
  } else {
    Check("token losses, relative L2", error,
          ratios.Of(dtype) * goldens.Scalar("bf16.token_loss"));
  }
}

void CheckGradients(const Subject& subject,
                    const std::function<const float*(int unit)>& gradient,
                    DType dtype, float scale, const HalfRatios& ratios) {
  const Goldens& goldens = subject.goldens();
  subject.ForEachTrained([&](int unit, const ParameterSpec& parameter) {
    const float* const begin = gradient(unit) + parameter.unit_offset_elements;
    std::vector<float> values(begin, begin + parameter.element_count);
    for (float& value : values) value /= scale;
    const std::string& name = parameter.name;
    const double error = Relative(values, goldens.Floats("grad." + name));
    if (dtype == DType::kF32) {
      Check(name, error, kTolerance, goldens.Scalar("eager.grad." + name));
    } else {
      Check(name, error,
            ratios.Of(dtype) * goldens.Scalar("bf16.grad." + name));
    }
  });
}

}  // namespace roundhouse::parity
