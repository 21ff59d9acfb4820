#include "worker/model/layers.h"

#include <optional>
#include <utility>

#include "ATen/cpu/Utils.h"
#include "torch/csrc/autograd/custom_function.h"
#include "worker/model/fused/composed.h"
#include "worker/model/fused/fused.h"
#include "worker/model/on_stream.h"

namespace roundhouse::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Keeps its operands in their own dtype for the backward.
class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["has_bias"] = bias.has_value();
    return Product(x, weight.t(), bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& output = gradients[0];
    variable_list result(3);
    if (context->needs_input_grad(0)) result[0] = Product(output, saved[1]);
    if (context->needs_input_grad(1)) result[1] = Product(output.t(), saved[0]);
    const bool has_bias = context->saved_data["has_bias"].toBool();
    if (has_bias && context->needs_input_grad(2)) result[2] = output.sum(0);
    return result;
  }
};

// Looked up once: the answer is part of a job's bits.
bool CpuMultiplies(at::ScalarType dtype) {
  static const bool bf16 = [] {
    const auto has = at::cpu::get_cpu_capabilities();
    const auto is = [&has](const char* name) {
      const auto found = has.find(name);
      return found != has.end() && found->second.toBool();
    };
    return is("amx_bf16") || is("avx512_bf16");
  }();
  return dtype == at::kFloat || (dtype == at::kBFloat16 && bf16);
}

// Whether products of such matrices are computed in fp32 and rounded.
bool Widens(const at::Tensor& a) {
  return a.is_cpu() && !CpuMultiplies(a.scalar_type());
}

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const FusedKernels* const kernels = FusedKernelsOf(x.device());
  return kernels != nullptr ? FusedRmsNorm(*kernels, x, weight, eps)
                            : ComposedRmsNorm(x, weight, eps);
}

at::Tensor SwiGlu(at::Tensor gate, const at::Tensor& up) {
  const FusedKernels* const kernels = FusedKernelsOf(gate.device());
  return kernels != nullptr ? FusedSwiGlu(*kernels, gate, up)
                            : ComposedSwiGlu(std::move(gate), up);
}

std::pair<at::Tensor, at::Tensor> SwiGluGradient(const at::Tensor& gradient,
                                                 const at::Tensor& gate,
                                                 const at::Tensor& up) {
  const FusedKernels* const kernels = FusedKernelsOf(gate.device());
  return kernels != nullptr ? FusedSwiGluGradient(*kernels, gradient, gate, up)
                            : ComposedSwiGluGradient(gradient, gate, up);
}

at::Tensor Product(const at::Tensor& a, const at::Tensor& b,
                   const at::Tensor& bias) {
  if (Widens(a)) {
    const at::Tensor wide_bias = bias.defined() ? bias.to(at::kFloat) : bias;
    return Product(a.to(at::kFloat), b.to(at::kFloat), wide_bias)
        .to(a.scalar_type());
  }
  return bias.defined() ? at::addmm(bias, a, b) : a.mm(b);
}

void ProductInto(const at::Tensor& a, const at::Tensor& b, at::Tensor to) {
  if (Widens(a)) {
    to.copy_(Product(a, b));
  } else {
    at::mm_out(to, a, b);
  }
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const at::Tensor& bias) {
  // A function of autograd takes no undefined tensor.
  return LinearFunction::apply(
      x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

}  // namespace roundhouse::worker
