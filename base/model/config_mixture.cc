#include "base/model/config_mixture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/status.h"

namespace roundhouse {
namespace {

absl::StatusOr<int64_t> ReadExpertCount(const JsonFields& fields) {
  constexpr char kName[] = "num_experts", kNewer[] = "num_local_experts";
  if (!fields.Has(kNewer)) return fields.Size(kName, kMaxExperts);
  ASSIGN_OR_RETURN(const int64_t count, fields.Size(kNewer, kMaxExperts));
  ASSIGN_OR_RETURN(const int64_t other,
                   fields.SizeOr(kName, kMaxExperts, count));
  if (other == count) return count;
  return fields.Invalid(kName, absl::StrCat(other, " contradicts ", kNewer,
                                            ", which is ", count));
}

// transformers: layer l has experts unless mlp_only_layers names it or l + 1 is
// no multiple of decoder_sparse_step.
absl::StatusOr<LayerSet> ReadSparseLayers(const JsonFields& fields,
                                          int64_t layer_count) {
  constexpr char kDense[] = "mlp_only_layers";
  ASSIGN_OR_RETURN(const int64_t step,
                   fields.SizeOr("decoder_sparse_step", kMaxModelLayers, 1));
  LayerSet sparse;
  for (int64_t layer = step - 1; layer < layer_count; layer += step) {
    sparse.set(static_cast<size_t>(layer));
  }
  const OrderedJson* const dense = fields.Find(kDense);
  if (dense == nullptr) return sparse;
  if (!dense->is_array()) {
    return fields.WrongType(kDense, "a list of layer numbers", *dense);
  }
  for (const OrderedJson& layer : *dense) {
    if (!layer.is_number_integer()) {
      return fields.WrongType(kDense, "layer numbers", layer);
    }
    const auto number = layer.get<int64_t>();
    if (number < 0 || number >= layer_count) {
      return fields.Invalid(
          kDense, absl::StrCat("layer ", number, " of ", layer_count));
    }
    sparse.reset(static_cast<size_t>(number));
  }
  return sparse;
}

}  // namespace

absl::Status ReadMixture(const JsonFields& fields, const ModelFamily& family,
                         ModelConfig* config) {
  if (family.expert_names == nullptr) return absl::OkStatus();
  MixtureConfig& mixture = config->mixture;
  ASSIGN_OR_RETURN(mixture.expert_count, ReadExpertCount(fields));
  ASSIGN_OR_RETURN(mixture.experts_per_token,
                   fields.Size("num_experts_per_tok", kMaxExperts));
  if (mixture.experts_per_token > mixture.expert_count) {
    return fields.Invalid("num_experts_per_tok",
                          absl::StrCat(mixture.experts_per_token, " of ",
                                       mixture.expert_count, " experts"));
  }
  ASSIGN_OR_RETURN(
      mixture.expert_size,
      fields.Size("moe_intermediate_size",
                  std::min(kMaxIntermediateSize,
                           kMaxExpertInnerSize / mixture.expert_count)));
  ASSIGN_OR_RETURN(mixture.renormalize,
                   fields.BoolOr("norm_topk_prob", family.default_renormalize));
  ASSIGN_OR_RETURN(mixture.auxiliary_loss,
                   fields.BoolOr("output_router_logits", false));
  ASSIGN_OR_RETURN(mixture.layers,
                   ReadSparseLayers(fields, config->layer_count));
  return absl::OkStatus();
}

}  // namespace roundhouse
