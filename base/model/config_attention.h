// The part of config.json that says how a model attends: rotary embedding,
// biases, sliding windows.  For config.cc and model_shape.cc only.
#ifndef ROUNDHOUSE_BASE_MODEL_CONFIG_ATTENTION_H_
#define ROUNDHOUSE_BASE_MODEL_CONFIG_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model/config.h"
#include "base/model/family.h"
#include "base/model/json.h"

namespace roundhouse {

// rope_theta and rope_scaling, from either spelling.  `path` names the file.
absl::Status ReadRope(const JsonFields& fields, const std::string& path,
                      const ModelFamily& family, ModelConfig* config);

// query_key_value_bias, output_bias, mlp_bias.
absl::Status ReadBiases(const JsonFields& fields, const ModelFamily& family,
                        ModelConfig* config);

// The layers that layer_types calls sliding_attention; none where the field is
// absent.
absl::StatusOr<std::optional<LayerSet>> ReadLayerTypes(const JsonFields& fields,
                                                       int64_t layer_count);

// sliding_window and sliding_layers; both 0 where no layer has a window.
// REQUIRES: config->layer_count is set.
absl::Status ReadSlidingWindow(const JsonFields& fields,
                               const ModelFamily& family, ModelConfig* config);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_CONFIG_ATTENTION_H_
