#include "worker/model/mixture.h"

#include <utility>
#include <vector>

#include "base/model/family.h"
#include "c10/core/GradMode.h"
#include "torch/csrc/autograd/custom_function.h"
#include "worker/model/on_stream.h"

namespace roundhouse::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using ExpertRowsPtr = c10::intrusive_ptr<ExpertRows>;

// Calls visit(expert, begin, end) for every expert that has rows, in order.
template <typename Visit>
void ForEachExpert(const ExpertRows& rows, Visit visit) {
  int64_t begin = 0;
  for (size_t expert = 0; expert < rows.expert_ends.size(); ++expert) {
    const int64_t end = rows.expert_ends[expert];
    if (begin < end) visit(static_cast<int64_t>(expert), begin, end);
    begin = end;
  }
}

// Adds rows to those of `sum`, [n, width] fp32, that `tokens` names; none
// twice.
void AddRows(const at::Tensor& rows, const at::Tensor& tokens,
             at::Tensor& sum) {
  sum.index_copy_(0, tokens, sum.index_select(0, tokens).add_(rows));
}

// In the rows' dtype, also where weights are wider.
at::Tensor Weighted(const at::Tensor& rows, const at::Tensor& weights) {
  return (rows * weights).to(rows.scalar_type());
}

at::Tensor NoSum(const at::Tensor& like) {
  return at::zeros(like.sizes(), like.options().dtype(at::kFloat));
}

// [n * k, 1], by row, of the tokens' weights, [n, k].
at::Tensor RowWeights(const ExpertRows& order, const at::Tensor& weights) {
  return weights.reshape(-1).index_select(0, order.order).unsqueeze(1);
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
// Expert by expert, in order: a token's outputs add up in fp32 as they come.
// Keeps x, the weights and, where the rows say so, the experts' gates and ups.
class ExpertsFunction : public torch::autograd::Function<ExpertsFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weights,
                            const at::Tensor& gate_up, const at::Tensor& down,
                            const ExpertRowsPtr& order) {
    const bool keep = order->keep;
    const at::Tensor row_weights = RowWeights(*order, weights);
    const at::Tensor kept = at::empty(
        {keep ? order->tokens.size(0) : 0, gate_up.size(1)}, x.options());
    at::Tensor sum = NoSum(x);
    ForEachExpert(*order, [&](int64_t expert, int64_t begin, int64_t end) {
      const at::Tensor tokens = order->tokens.slice(0, begin, end);
      const at::Tensor both =
          keep ? kept.slice(0, begin, end)
               : at::empty({end - begin, gate_up.size(1)}, x.options());
      ProductInto(x.index_select(0, tokens), gate_up[expert].t(), both);
      const at::Tensor output =
          Weighted(Product(SwiGlu(GateOf(both), UpOf(both)), down[expert].t()),
                   row_weights.slice(0, begin, end));
      AddRows(output, tokens, sum);
    });
    context->save_for_backward({x, weights, gate_up, down, kept});
    context->saved_data["order"] = c10::IValue::make_capsule(order);
    return sum.to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &kept = saved[4];
    const auto order = c10::static_intrusive_pointer_cast<ExpertRows>(
        context->saved_data["order"].toCapsule());
    const Weights weights = {RowWeights(*order, saved[1]), saved[2], saved[3]};
    Gradients out;
    out.x = NoSum(x);
    out.rows = at::empty({order->tokens.size(0)}, out.x.options());
    if (context->needs_input_grad(2)) out.gate_up = at::zeros_like(saved[2]);
    if (context->needs_input_grad(3)) out.down = at::zeros_like(saved[3]);
    ForEachExpert(*order, [&](int64_t expert, int64_t begin, int64_t end) {
      const at::Tensor tokens = order->tokens.slice(0, begin, end);
      Backward({.expert = expert,
                .begin = begin,
                .end = end,
                .tokens = tokens,
                .both = kept.slice(0, begin, end)},
               weights, x, gradients[0].index_select(0, tokens), &out);
    });
    const at::Tensor of_weights =
        out.rows.index_select(0, order->places.reshape(-1))
            .view(saved[1].sizes())
            .to(saved[1].scalar_type());
    return {out.x.to(x.scalar_type()), of_weights, out.gate_up, out.down,
            at::Tensor()};
  }

 private:
  struct Weights {
    at::Tensor rows;  // [n * k, 1]
    at::Tensor gate_up, down;
  };
  struct Gradients {
    at::Tensor x;              // [n, H] fp32
    at::Tensor rows;           // [n * k] fp32, of the rows' weights
    at::Tensor gate_up, down;  // undefined where nobody wants them
  };
  struct Expert {
    int64_t expert = 0;
    int64_t begin = 0, end = 0;  // its rows
    at::Tensor tokens;           // theirs
    at::Tensor both;             // their gates and ups
  };

  // `gradient` is that of the outputs of the expert's tokens.
  static void Backward(const Expert& one, const Weights& weights,
                       const at::Tensor& x, at::Tensor gradient,
                       Gradients* out) {
    const at::Tensor gate = GateOf(one.both), up = UpOf(one.both);
    const at::Tensor row_weights = weights.rows.slice(0, one.begin, one.end);
    at::Tensor inner = SwiGlu(gate, up);
    at::Tensor inner_gradient = Product(gradient, weights.down[one.expert]);
    // A row's weight gets what the row would be without it.
    out->rows.slice(0, one.begin, one.end)
        .copy_((inner_gradient.to(at::kFloat) * inner).sum(1));
    if (out->down.defined()) {
      ProductInto(gradient.mul_(row_weights).t(), inner, out->down[one.expert]);
    }
    gradient.reset();
    inner.reset();
    auto halves = SwiGluGradient(inner_gradient.mul_(row_weights), gate, up);
    inner_gradient = at::cat({halves.first, halves.second}, 1);
    halves = {};
    AddRows(Product(inner_gradient, weights.gate_up[one.expert]), one.tokens,
            out->x);
    if (out->gate_up.defined()) {
      ProductInto(inner_gradient.t(), x.index_select(0, one.tokens),
                  out->gate_up[one.expert]);
    }
  }
};

}  // namespace

c10::intrusive_ptr<ExpertRows> MakeExpertRows(std::vector<ExpertPick> picks,
                                              int64_t per_token,
                                              int64_t expert_count,
                                              const at::Device& device) {
  auto rows = c10::make_intrusive<ExpertRows>();
  // A counting sort.
  std::vector<int64_t> next(static_cast<size_t>(expert_count), 0);
  for (const ExpertPick expert : picks) ++next[static_cast<size_t>(expert)];
  int64_t end = 0;
  for (int64_t& count : next) {
    end += count;
    rows->expert_ends.push_back(end);
    count = end - count;  // where its rows begin
  }
  std::vector<int64_t> experts(picks.begin(), picks.end());
  std::vector<int64_t> places(picks.size()), order(picks.size()),
      tokens(picks.size());
  for (size_t pick = 0; pick < picks.size(); ++pick) {
    const int64_t row = next[static_cast<size_t>(picks[pick])]++;
    places[pick] = row;
    order[static_cast<size_t>(row)] = static_cast<int64_t>(pick);
    tokens[static_cast<size_t>(row)] = static_cast<int64_t>(pick) / per_token;
  }
  const auto on_device = [&](const std::vector<int64_t>& values) {
    return ToDevice(at::tensor(values, at::kLong), device);
  };
  rows->experts = on_device(experts).view({-1, per_token});
  rows->places = on_device(places).view({-1, per_token});
  rows->order = on_device(order);
  rows->tokens = on_device(tokens);
  rows->picks = std::move(picks);
  return rows;
}

std::vector<ExpertPick> PickExperts(const at::Tensor& logits, int64_t count) {
  const at::Tensor by_value = at::argsort(logits.detach(), /*stable=*/true, -1,
                                          /*descending=*/true);
  const at::Tensor picked = std::get<0>(by_value.slice(1, 0, count).sort(-1))
                                .to(at::kShort)
                                .to(at::kCPU)
                                .contiguous();
  const auto* const first = picked.const_data_ptr<ExpertPick>();
  return {first, first + picked.numel()};
}

at::Tensor Mixture(const LayerContext& context, const LayerTensors& weights,
                   const at::Tensor& x) {
  const MixtureConfig& mixture = context.config.mixture;
  const at::Tensor logits = Linear(x, weights[ParamRole::kRouter]);
  ExpertRowsPtr own;
  ExpertRowsPtr& rows = context.experts != nullptr ? *context.experts : own;
  if (rows == nullptr) {
    rows = MakeExpertRows(PickExperts(logits, mixture.experts_per_token),
                          mixture.experts_per_token, mixture.expert_count,
                          x.device());
  }
  // Inside a function of autograd the mode is not the caller's.
  rows->keep = c10::GradMode::is_enabled();
  const at::Tensor shares =
      ShareFunction::apply(logits, rows->experts, mixture.renormalize);
  const bool wide = FamilyOf(context.config.architecture).experts->wide_shares;
  return ExpertsFunction::apply(x, wide ? shares : shares.to(x.scalar_type()),
                                weights[ParamRole::kExpertsGateUp],
                                weights[ParamRole::kExpertsDown], rows);
}

}  // namespace roundhouse::worker
