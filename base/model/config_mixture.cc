#include "base/model/config_mixture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/status.h"

namespace roundhouse {
namespace {

absl::StatusOr<int64_t> ReadExpertCount(const JsonFields& fields,
                                        const ExpertFamily& family) {
  constexpr char kName[] = "num_experts", kNewer[] = "num_local_experts";
  if (!fields.Has(kName) && !fields.Has(kNewer)) {
    return fields.Size(family.count_field, kMaxExperts);
  }
  if (!fields.Has(kNewer)) return fields.Size(kName, kMaxExperts);
  ASSIGN_OR_RETURN(const int64_t count, fields.Size(kNewer, kMaxExperts));
  ASSIGN_OR_RETURN(const int64_t other,
                   fields.SizeOr(kName, kMaxExperts, count));
  if (other == count) return count;
  return fields.Invalid(kName, absl::StrCat(other, " contradicts ", kNewer,
                                            ", which is ", count));
}

absl::Status CheckNoNoise(const JsonFields& fields) {
  constexpr char kField[] = "router_jitter_noise";
  ASSIGN_OR_RETURN(const double noise, fields.NumberOr(kField, 0.0));
  if (noise == 0.0) return absl::OkStatus();
  return fields.Unsupported(
      kField, absl::StrCat(noise, " is not supported; supported: 0"));
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

absl::Status ReadExperts(const JsonFields& fields, const ExpertFamily& family,
                         MixtureConfig* mixture) {
  ASSIGN_OR_RETURN(mixture->expert_count, ReadExpertCount(fields, family));
  ASSIGN_OR_RETURN(mixture->experts_per_token,
                   fields.Size("num_experts_per_tok", kMaxExperts));
  if (mixture->experts_per_token > mixture->expert_count) {
    return fields.Invalid("num_experts_per_tok",
                          absl::StrCat(mixture->experts_per_token, " of ",
                                       mixture->expert_count, " experts"));
  }
  ASSIGN_OR_RETURN(
      mixture->expert_size,
      fields.Size(family.size_field,
                  std::min(kMaxIntermediateSize,
                           kMaxExpertInnerSize / mixture->expert_count)));
  return absl::OkStatus();
}

absl::Status ReadMixture(const JsonFields& fields, const ModelFamily& family,
                         ModelConfig* config) {
  if (family.experts == nullptr) return absl::OkStatus();
  const ExpertFamily& experts = *family.experts;
  MixtureConfig& mixture = config->mixture;
  RETURN_IF_ERROR(ReadExperts(fields, experts, &mixture));
  ASSIGN_OR_RETURN(mixture.auxiliary_loss,
                   fields.BoolOr("output_router_logits", false));
  RETURN_IF_ERROR(CheckNoNoise(fields));
  if (experts.shared != nullptr) {
    ASSIGN_OR_RETURN(mixture.shared_size, fields.Size(experts.shared_size_field,
                                                      kMaxIntermediateSize));
  }
  mixture.renormalize = !experts.has_choices;
  mixture.layers = LayersFrom(0, config->layer_count);
  if (!experts.has_choices) return absl::OkStatus();
  ASSIGN_OR_RETURN(mixture.renormalize, fields.BoolOr("norm_topk_prob", false));
  ASSIGN_OR_RETURN(mixture.layers,
                   ReadSparseLayers(fields, config->layer_count));
  return absl::OkStatus();
}

}  // namespace roundhouse
