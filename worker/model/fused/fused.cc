#include "worker/model/fused/fused.h"

#include <algorithm>

#include "base/work_kinds.h"
#include "torch/csrc/autograd/custom_function.h"

namespace roundhouse::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Chunks for the gradient of a norm's weight: enough for any device, each long
// enough that its sums are few beside what it read.
constexpr int64_t kMostChunks = 256;
constexpr int64_t kLeastChunkRows = 64;

constexpr const char* kKernels = "kernels";

DType DTypeOf(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return DType::kF32;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kHalf:
      return DType::kF16;
    default:
      TORCH_CHECK(false, "no kernel for ", x.scalar_type());
  }
}

void CheckAlike(const at::Tensor& x, const at::Tensor& other,
                const char* what) {
  TORCH_CHECK(
      other.scalar_type() == x.scalar_type() && other.device() == x.device(),
      what, " is ", other.scalar_type(), " on ", other.device(), ", beside ",
      x.scalar_type(), " on ", x.device());
}

void Keep(AutogradContext* context, const FusedKernels* kernels) {
  context->saved_data[kKernels] = reinterpret_cast<int64_t>(kernels);
}

const FusedKernels& KernelsOf(AutogradContext* context) {
  return *reinterpret_cast<const FusedKernels*>(
      context->saved_data[kKernels].toInt());
}

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context,
                            const FusedKernels* kernels, const at::Tensor& x,
                            const at::Tensor& weight, double epsilon) {
    CheckAlike(x, weight, "a norm's weight");
    const at::Tensor dense = x.contiguous();
    RmsNormWork work;
    work.dtype = DTypeOf(x);
    work.columns = weight.numel();
    TORCH_CHECK(weight.is_contiguous() && x.size(-1) == work.columns,
                "a norm over ", x.size(-1), " by weights of ", weight.sizes());
    work.rows = x.numel() / work.columns;
    const at::Tensor y = at::empty_like(dense);
    const at::Tensor scales =
        at::empty({work.rows}, x.options().dtype(at::kFloat));
    work.x = dense.const_data_ptr();
    work.weight = weight.const_data_ptr();
    work.epsilon = static_cast<float>(epsilon);
    work.y = y.mutable_data_ptr();
    work.scales = scales.mutable_data_ptr<float>();
    kernels->Run(work);
    Keep(context, kernels);
    context->save_for_backward({dense, weight, scales});
    return y;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scales = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dx = at::empty_like(x);
    RmsNormGradientWork work;
    work.dtype = DTypeOf(x);
    work.columns = weight.numel();
    work.rows = scales.numel();
    work.dy = dy.const_data_ptr();
    work.x = x.const_data_ptr();
    work.weight = weight.const_data_ptr();
    work.scales = scales.const_data_ptr<float>();
    work.dx = dx.mutable_data_ptr();
    at::Tensor sums;
    if (context->needs_input_grad(1)) {
      work.chunk_rows = std::max(kLeastChunkRows,
                                 (work.rows + kMostChunks - 1) / kMostChunks);
      const int64_t chunks =
          (work.rows + work.chunk_rows - 1) / work.chunk_rows;
      sums = at::empty({chunks, work.columns}, scales.options());
      work.weight_sums = sums.mutable_data_ptr<float>();
    }
    KernelsOf(context).Run(work);
    const at::Tensor dweight =
        sums.defined() ? sums.sum(0).to(weight.scalar_type()) : sums;
    return {at::Tensor(), dx, dweight, at::Tensor()};
  }
};

RopeWork::Strides StridesOf(const at::Tensor& x) {
  return {.row = x.stride(0), .head = x.stride(1), .token = x.stride(2)};
}

// x, turned or turned back.
at::Tensor Turned(const FusedKernels& kernels, const at::Tensor& x,
                  const at::Tensor& cos, const at::Tensor& sin,
                  PassDirection direction) {
  const at::Tensor from = x.stride(3) == 1 ? x : x.contiguous();
  const int64_t rows = x.size(0), heads = x.size(1), tokens = x.size(2),
                head_dim = x.size(3);
  const at::Tensor y =
      at::empty({rows, tokens, heads, head_dim}, x.options()).transpose(1, 2);
  RopeWork work;
  work.dtype = DTypeOf(x);
  work.rows = rows;
  work.heads = heads;
  work.tokens = tokens;
  work.head_dim = head_dim;
  work.x = from.const_data_ptr();
  work.x_strides = StridesOf(from);
  work.y = y.mutable_data_ptr();
  work.y_strides = StridesOf(y);
  work.cos = cos.const_data_ptr();
  work.sin = sin.const_data_ptr();
  const bool by_row = cos.dim() == 4 && cos.size(0) > 1;
  work.table_row_stride = by_row ? tokens * head_dim : 0;
  work.backward = direction == PassDirection::kBackward;
  kernels.Run(work);
  return y;
}

class RopeFunction : public torch::autograd::Function<RopeFunction> {
 public:
  static at::Tensor forward(AutogradContext* context,
                            const FusedKernels* kernels, const at::Tensor& x,
                            const at::Tensor& cos, const at::Tensor& sin) {
    Keep(context, kernels);
    context->save_for_backward({cos, sin});
    return Turned(*kernels, x, cos, sin, PassDirection::kForward);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {at::Tensor(),
            Turned(KernelsOf(context), gradients[0], saved[0], saved[1],
                   PassDirection::kBackward),
            at::Tensor(), at::Tensor()};
  }
};

class SwiGluFunction : public torch::autograd::Function<SwiGluFunction> {
 public:
  static at::Tensor forward(AutogradContext* context,
                            const FusedKernels* kernels, const at::Tensor& gate,
                            const at::Tensor& up) {
    const at::Tensor gates = gate.contiguous(), ups = up.contiguous();
    const at::Tensor y = at::empty_like(gates);
    SwiGluWork work;
    work.dtype = DTypeOf(gates);
    work.count = gates.numel();
    work.gate = gates.const_data_ptr();
    work.up = ups.const_data_ptr();
    work.y = y.mutable_data_ptr();
    kernels->Run(work);
    Keep(context, kernels);
    context->save_for_backward({gates, ups});
    return y;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto [gate, up] = FusedSwiGluGradient(
        KernelsOf(context), gradients[0], saved[0], saved[1]);
    return {at::Tensor(), gate, up};
  }
};

void CheckTable(const at::Tensor& x, const at::Tensor& table,
                const char* what) {
  CheckAlike(x, table, what);
  const bool by_row = table.dim() == 4;
  TORCH_CHECK(
      table.is_contiguous() && (by_row || table.dim() == 2) &&
          table.size(-2) == x.size(2) && table.size(-1) == x.size(3) &&
          (!by_row || (table.size(1) == 1 &&
                       (table.size(0) == 1 || table.size(0) == x.size(0)))),
      what, " of ", table.sizes(), " for ", x.sizes());
}

}  // namespace

at::Tensor FusedRmsNorm(const FusedKernels& kernels, const at::Tensor& x,
                        const at::Tensor& weight, double epsilon) {
  return RmsNormFunction::apply(&kernels, x, weight, epsilon);
}

at::Tensor FusedRope(const FusedKernels& kernels, const at::Tensor& x,
                     const at::Tensor& cos, const at::Tensor& sin) {
  TORCH_CHECK(x.dim() == 4 && x.size(3) % 2 == 0, "rotary embedding of ",
              x.sizes());
  CheckTable(x, cos, "a table of cosines");
  CheckTable(x, sin, "a table of sines");
  TORCH_CHECK(cos.sizes() == sin.sizes(), "cosines of ", cos.sizes(),
              " beside sines of ", sin.sizes());
  return RopeFunction::apply(&kernels, x, cos, sin);
}

at::Tensor FusedSwiGlu(const FusedKernels& kernels, const at::Tensor& gate,
                       const at::Tensor& up) {
  CheckAlike(gate, up, "what a gate is for");
  TORCH_CHECK(gate.sizes() == up.sizes(), "a gate of ", gate.sizes(), " for ",
              up.sizes());
  return SwiGluFunction::apply(&kernels, gate, up);
}

std::pair<at::Tensor, at::Tensor> FusedSwiGluGradient(
    const FusedKernels& kernels, const at::Tensor& gradient,
    const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor dy = gradient.contiguous();
  const at::Tensor gates = gate.contiguous(), ups = up.contiguous();
  const at::Tensor dgate = at::empty_like(gates);
  const at::Tensor dup = at::empty_like(ups);
  SwiGluGradientWork work;
  work.dtype = DTypeOf(dy);
  work.count = dy.numel();
  work.dy = dy.const_data_ptr();
  work.gate = gates.const_data_ptr();
  work.up = ups.const_data_ptr();
  work.dgate = dgate.mutable_data_ptr();
  work.dup = dup.mutable_data_ptr();
  kernels.Run(work);
  return {dgate, dup};
}

}  // namespace roundhouse::worker
