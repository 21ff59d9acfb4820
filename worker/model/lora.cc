#include "worker/model/lora.h"

#include <optional>

#include "ATen/TensorIterator.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/custom_class.h"
#include "worker/model/fused/split_products.h"
#include "worker/model/on_stream.h"

namespace roundhouse::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Tokens that one thread masks at a time.
constexpr int64_t kMaskGrain = 16;

// One matrix's adapter without its weights.  A capsule, so that autograd can
// keep it.
struct Branch : torch::CustomClassHolder {
  double scale = 1;
  int64_t row_tokens = 1;
  std::optional<DropoutMask> mask;
};
using BranchPtr = c10::intrusive_ptr<Branch>;

BranchPtr MakeBranch(const LayerContext& context, ParamRole matrix) {
  const AdapterContext& adapter = *context.adapter;
  auto branch = c10::make_intrusive<Branch>();
  branch->scale = adapter.config.scale();
  branch->row_tokens = adapter.row_tokens;
  if (adapter.dropout && adapter.config.dropout > 0) {
    branch->mask.emplace(adapter.config.dropout, adapter.key, context.layer,
                         matrix);
  }
  return branch;
}

// Both [n, features], fp32, dense; they may be one.  On the host an iterator
// over the tokens' numbers, because only LibTorch's own code is compiled for
// its threads: at::parallel_for in ours would run on one.
void Mask(const Branch& branch, const at::Tensor& from, const at::Tensor& to) {
  if (!from.is_cpu()) {
    return ApplyMask(*branch.mask, branch.row_tokens, from, to);
  }
  const int64_t features = from.size(1);
  const float* const source = from.const_data_ptr<float>();
  float* const target = to.data_ptr<float>();
  const at::Tensor tokens = at::arange(from.size(0), at::kLong);
  at::TensorIterator::borrowing_nullary_op(tokens).for_each(
      [&](char** data, const int64_t* strides, int64_t inner, int64_t outer) {
        for (int64_t n = 0; n < inner * outer; ++n) {
          const int64_t i = *reinterpret_cast<const int64_t*>(
              data[0] + n % inner * strides[0] + n / inner * strides[1]);
          branch.mask->Apply(i / branch.row_tokens, i % branch.row_tokens,
                             source + i * features, target + i * features,
                             features);
        }
      },
      kMaskGrain);
}

// What A is multiplied with.
at::Tensor AdapterInput(const Branch& branch, const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  if (!branch.mask) return wide;
  const at::Tensor masked = at::empty_like(wide);
  Mask(branch, wide, masked);
  return masked;
}

class AdapterFunction : public torch::autograd::Function<AdapterFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& base,
                            const at::Tensor& x, const at::Tensor& a,
                            const at::Tensor& b, const BranchPtr& branch) {
    const at::Tensor low = AdapterInput(*branch, x).mm(a.t());
    context->save_for_backward({x, a, b, low});
    context->saved_data["branch"] = c10::IValue::make_capsule(branch);
    return (base.to(at::kFloat) + low.mm(b.t()) * branch->scale)
        .to(base.scalar_type());
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &a = saved[1], &b = saved[2];
    const auto branch = c10::static_intrusive_pointer_cast<Branch>(
        context->saved_data["branch"].toCapsule());
    const at::Tensor output = gradients[0].to(at::kFloat) * branch->scale;
    const at::Tensor low = output.mm(b);
    const at::Tensor input = low.mm(a);
    const at::Tensor a_gradient = low.t().mm(AdapterInput(*branch, x));
    if (branch->mask) Mask(*branch, input, input);
    return {gradients[0], input.to(x.scalar_type()), a_gradient,
            output.t().mm(saved[3]), at::Tensor()};
  }
};

// The same of bf16 on a device with kernels of our own: no matrix as wide as a
// token is written in fp32, but a masked input.
class SplitAdapterFunction
    : public torch::autograd::Function<SplitAdapterFunction> {
 public:
  // The sum takes the place of `base`.
  static at::Tensor forward(AutogradContext* context, at::Tensor base,
                            const at::Tensor& x, const at::Tensor& a,
                            const at::Tensor& b, const BranchPtr& branch) {
    const FusedKernels& kernels = *FusedKernelsOf(x.device());
    const at::Tensor low = branch->mask ? AdapterInput(*branch, x).mm(a.t())
                                        : WideProduct(kernels, x, a.t());
    AddNarrowProduct(kernels, low, b.t(), branch->scale, base);
    context->mark_dirty({base});
    context->save_for_backward({x, a, b, low});
    context->saved_data["branch"] = c10::IValue::make_capsule(branch);
    return base;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &a = saved[1], &b = saved[2];
    const auto branch = c10::static_intrusive_pointer_cast<Branch>(
        context->saved_data["branch"].toCapsule());
    const FusedKernels& kernels = *FusedKernelsOf(x.device());
    const at::Tensor& output = gradients[0];
    const at::Tensor low = WideProduct(kernels, output, b, branch->scale);
    const at::Tensor b_gradient =
        WideProduct(kernels, output.t(), saved[3], branch->scale);
    at::Tensor input, a_gradient;
    if (branch->mask) {
      a_gradient = low.t().mm(AdapterInput(*branch, x));
      input = low.mm(a);
      Mask(*branch, input, input);
      input = input.to(x.scalar_type());
    } else {
      a_gradient = WideProduct(kernels, x.t(), low).t().contiguous();
      input = NarrowProduct(kernels, low, a);
    }
    return {output, input, a_gradient, b_gradient, at::Tensor()};
  }
};

bool Splits(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 &&
         FusedKernelsOf(x.device()) != nullptr;
}

}  // namespace

at::Tensor AddAdapter(const LayerContext& context, const LayerTensors& weights,
                      ParamRole matrix, const at::Tensor& x,
                      const at::Tensor& base) {
  if (!context.adapter->config.Targets(matrix)) return base;
  const at::Tensor &a = weights[LoraAOf(matrix)], &b = weights[LoraBOf(matrix)];
  const BranchPtr branch = MakeBranch(context, matrix);
  return Splits(x) ? SplitAdapterFunction::apply(base, x, a, b, branch)
                   : AdapterFunction::apply(base, x, a, b, branch);
}

}  // namespace roundhouse::worker
