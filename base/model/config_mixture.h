// The part of config.json that says where a model has experts and how many.
// For config.cc and model_shape.cc only.
#ifndef ROUNDHOUSE_BASE_MODEL_CONFIG_MIXTURE_H_
#define ROUNDHOUSE_BASE_MODEL_CONFIG_MIXTURE_H_

#include "absl/status/status.h"
#include "base/model/config.h"
#include "base/model/family.h"
#include "base/model/json.h"

namespace roundhouse {

// expert_count, experts_per_token and expert_size, with the family's names.
absl::Status ReadExperts(const JsonFields& fields, const ExpertFamily& family,
                         MixtureConfig* mixture);

// config->mixture, from num_experts or num_local_experts (transformers 5 writes
// the latter), num_experts_per_tok, moe_intermediate_size,
// shared_expert_intermediate_size, norm_topk_prob, decoder_sparse_step,
// mlp_only_layers and output_router_logits.  Nothing of a
// family without experts.  REQUIRES: config->layer_count is set.
absl::Status ReadMixture(const JsonFields& fields, const ModelFamily& family,
                         ModelConfig* config);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_CONFIG_MIXTURE_H_
