#include "worker/model/mixture.h"

#include <vector>

#include "torch/csrc/autograd/custom_function.h"
#include "torch/custom_class.h"

namespace roundhouse::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The n * k picks of n tokens as rows, sorted by expert, then by token.  A
// capsule, so that autograd can keep it.
struct ExpertRows : torch::CustomClassHolder {
  at::Tensor tokens;  // [n * k], whose pick a row is
  at::Tensor places;  // [n, k], the row of a token's pick
  at::Tensor picks;   // [n * k], the pick of a row: token * k + j
  std::vector<int64_t> expert_ends;  // by expert, where its rows end

  // Calls visit(expert, its rows as a slice of what has n * k of them) for
  // every expert, in order; `rows` may be empty.
  template <typename Visit>
  void ForEach(Visit visit) const {
    int64_t begin = 0;
    for (size_t expert = 0; expert < expert_ends.size(); ++expert) {
      visit(static_cast<int64_t>(expert), begin, expert_ends[expert]);
      begin = expert_ends[expert];
    }
  }
};
using ExpertRowsPtr = c10::intrusive_ptr<ExpertRows>;

ExpertRowsPtr SortByExpert(const at::Tensor& experts, int64_t expert_count) {
  auto rows = c10::make_intrusive<ExpertRows>();
  const at::Tensor flat = experts.reshape(-1);
  rows->picks = at::argsort(flat, /*stable=*/true, 0, /*descending=*/false);
  rows->tokens = rows->picks.div(experts.size(1), "floor");
  rows->places =
      at::argsort(rows->picks, /*stable=*/true, 0, false).view(experts.sizes());
  const at::Tensor ends =
      at::searchsorted(flat.index_select(0, rows->picks),
                       at::arange(expert_count, flat.options()),
                       /*out_int32=*/false, /*right=*/true)
          .to(at::kCPU);
  rows->expert_ends.assign(ends.const_data_ptr<int64_t>(),
                           ends.const_data_ptr<int64_t>() + expert_count);
  return rows;
}

// [n, width] of rows, [n * k, width]: the sum of each token's, in order.
at::Tensor AddUp(const ExpertRows& order, const at::Tensor& rows) {
  at::Tensor sum;
  for (int64_t pick = 0; pick < order.places.size(1); ++pick) {
    const at::Tensor next =
        rows.index_select(0, order.places.select(1, pick)).to(at::kFloat);
    sum = pick == 0 ? next : sum.add_(next);
  }
  return sum.to(rows.scalar_type());
}

// [n * k, 1], by row, of the tokens' weights, [n, k].
at::Tensor RowWeights(const ExpertRows& order, const at::Tensor& weights) {
  return weights.reshape(-1).index_select(0, order.picks).unsqueeze(1);
}

// logits [n, E], picks [n, k] -> [n, k] in fp32: of a softmax over all experts
// the picked ones' shares; with `renormalize` of their sum.
class ShareFunction : public torch::autograd::Function<ShareFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& picks, bool renormalize) {
    const at::Tensor all = logits.softmax(-1, at::kFloat);
    const at::Tensor picked = all.gather(1, picks);
    context->save_for_backward({all, picks});
    context->saved_data["renormalize"] = renormalize;
    context->saved_data["dtype"] = logits.scalar_type();
    return renormalize ? picked / picked.sum(1, true) : picked;
  }

  // LibTorch's backward of gather adds atomically on a GPU; here every place is
  // written once.
  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &all = saved[0], &picks = saved[1];
    const at::Tensor picked = all.gather(1, picks);
    at::Tensor gradient = gradients[0];
    if (context->saved_data["renormalize"].toBool()) {
      const at::Tensor sum = picked.sum(1, true);
      gradient = (gradient - (gradient * picked / sum).sum(1, true)) / sum;
    }
    const at::Tensor mean = (gradient * picked).sum(1, true);
    const at::Tensor of_logits = all * -mean;
    const at::Tensor first =
        at::arange(all.size(0), picks.options()).unsqueeze(1) * all.size(1);
    of_logits.view(-1).index_put_({(picks + first).view(-1)},
                                  (picked * (gradient - mean)).view(-1));
    return {of_logits.to(context->saved_data["dtype"].toScalarType()),
            at::Tensor(), at::Tensor()};
  }
};

// The gate's half of [n * k, 2 I], and the other.
at::Tensor GateOf(const at::Tensor& both) {
  return both.slice(1, 0, both.size(1) / 2);
}
at::Tensor UpOf(const at::Tensor& both) {
  return both.slice(1, both.size(1) / 2);
}

// x [n, H], weights [n, k], gate_up [E, 2 I, H], down [E, H, I] -> [n, H].
// Keeps x, the weights and the experts' gates and ups.
class ExpertsFunction : public torch::autograd::Function<ExpertsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weights,
                            const at::Tensor& gate_up, const at::Tensor& down,
                            const ExpertRowsPtr& order) {
    const int64_t rows = order->tokens.size(0);
    const at::Tensor both = at::empty({rows, gate_up.size(1)}, x.options());
    order->ForEach([&](int64_t expert, int64_t begin, int64_t end) {
      if (begin == end) return;
      ProductInto(x.index_select(0, order->tokens.slice(0, begin, end)),
                  gate_up[expert].t(), both.slice(0, begin, end));
    });
    const at::Tensor inner = SwiGlu(GateOf(both), UpOf(both));
    const at::Tensor outputs = at::empty({rows, x.size(1)}, x.options());
    order->ForEach([&](int64_t expert, int64_t begin, int64_t end) {
      if (begin == end) return;
      ProductInto(inner.slice(0, begin, end), down[expert].t(),
                  outputs.slice(0, begin, end));
    });
    outputs.mul_(RowWeights(*order, weights));
    context->save_for_backward({x, weights, gate_up, down, both});
    context->saved_data["order"] = c10::IValue::make_capsule(order);
    return AddUp(*order, outputs);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &gate_up = saved[2], &both = saved[4];
    const auto order = c10::static_intrusive_pointer_cast<ExpertRows>(
        context->saved_data["order"].toCapsule());
    const at::Tensor weights = RowWeights(*order, saved[1]);
    at::Tensor inner = SwiGlu(GateOf(both), UpOf(both));
    variable_list result(5);
    at::Tensor inner_gradient =
        ThroughDown(*order, gradients[0], weights, saved[3], inner,
                    context->needs_input_grad(3) ? &result[3] : nullptr);
    // A row's weight gets what the row would be without it.
    result[1] = (inner_gradient.to(at::kFloat) * inner)
                    .sum(1)
                    .index_select(0, order->places.reshape(-1))
                    .view(saved[1].sizes())
                    .to(saved[1].scalar_type());
    inner.reset();
    auto halves =
        SwiGluGradient(inner_gradient.mul_(weights), GateOf(both), UpOf(both));
    inner_gradient = at::cat({halves.first, halves.second}, 1);
    halves = {};
    result[0] =
        ThroughGateUp(*order, x, inner_gradient, gate_up,
                      context->needs_input_grad(2) ? &result[2] : nullptr);
    return result;
  }

 private:
  // What the rows' inner values get from dy, [n, H], before the weights: [n *
  // k, I].  Where `gradient` is set, down's comes there.
  static at::Tensor ThroughDown(const ExpertRows& order, const at::Tensor& dy,
                                const at::Tensor& weights,
                                const at::Tensor& down, const at::Tensor& inner,
                                at::Tensor* gradient) {
    const at::Tensor inner_gradient = at::empty_like(inner);
    if (gradient != nullptr) *gradient = at::empty_like(down);
    order.ForEach([&](int64_t expert, int64_t begin, int64_t end) {
      if (begin == end) {
        if (gradient != nullptr) (*gradient)[expert].zero_();
        return;
      }
      const at::Tensor rows =
          dy.index_select(0, order.tokens.slice(0, begin, end));
      ProductInto(rows, down[expert], inner_gradient.slice(0, begin, end));
      if (gradient == nullptr) return;
      rows.mul_(weights.slice(0, begin, end));
      ProductInto(rows.t(), inner.slice(0, begin, end), (*gradient)[expert]);
    });
    return inner_gradient;
  }

  // The gradient of x, [n, H], from that of the gates and ups, [n * k, 2 I].
  static at::Tensor ThroughGateUp(const ExpertRows& order, const at::Tensor& x,
                                  const at::Tensor& both_gradient,
                                  const at::Tensor& gate_up,
                                  at::Tensor* gradient) {
    const at::Tensor rows =
        at::empty({order.tokens.size(0), x.size(1)}, x.options());
    if (gradient != nullptr) *gradient = at::empty_like(gate_up);
    order.ForEach([&](int64_t expert, int64_t begin, int64_t end) {
      if (begin == end) {
        if (gradient != nullptr) (*gradient)[expert].zero_();
        return;
      }
      const at::Tensor own = both_gradient.slice(0, begin, end);
      ProductInto(own, gate_up[expert], rows.slice(0, begin, end));
      if (gradient == nullptr) return;
      ProductInto(own.t(), x.index_select(0, order.tokens.slice(0, begin, end)),
                  (*gradient)[expert]);
    });
    return AddUp(order, rows);
  }
};

}  // namespace

at::Tensor PickExperts(const at::Tensor& logits, int64_t count) {
  const at::Tensor by_value = at::argsort(logits.detach(), /*stable=*/true, -1,
                                          /*descending=*/true);
  return std::get<0>(by_value.slice(1, 0, count).sort(-1));
}

at::Tensor Mixture(const LayerContext& context, const LayerTensors& weights,
                   const at::Tensor& x) {
  const MixtureConfig& mixture = context.config.mixture;
  const at::Tensor logits = Linear(x, weights[ParamRole::kRouter]);
  at::Tensor own;
  at::Tensor& picks = context.picks != nullptr ? *context.picks : own;
  if (!picks.defined()) picks = PickExperts(logits, mixture.experts_per_token);
  const at::Tensor shares =
      ShareFunction::apply(logits, picks, mixture.renormalize);
  return ExpertsFunction::apply(x, shares.to(x.scalar_type()),
                                weights[ParamRole::kExpertsGateUp],
                                weights[ParamRole::kExpertsDown],
                                SortByExpert(picks, mixture.expert_count));
}

}  // namespace roundhouse::worker
