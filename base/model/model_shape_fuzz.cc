// Whatever the bytes: ParseModelShape answers, and what it accepts is within
// the limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/limits.h"
#include "base/log.h"
#include "base/model/model_shape.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace roundhouse;
  const std::string json(reinterpret_cast<const char*>(data), size);
  const auto shape = ParseModelShape(json, "config.json");
  if (!shape.ok()) {
    ROUNDHOUSE_CHECK(!shape.status().message().empty());
    return 0;
  }
  const auto within = [](int64_t value, int64_t max) {
    return value >= 1 && value <= max;
  };
  ROUNDHOUSE_CHECK(within(shape->layer_count, kMaxModelLayers));
  ROUNDHOUSE_CHECK(within(shape->expert_count, kMaxExperts));
  ROUNDHOUSE_CHECK(within(shape->experts_per_token, shape->expert_count));
  ROUNDHOUSE_CHECK(within(shape->head_dim, kMaxHeadDim));
  ROUNDHOUSE_CHECK(within(shape->inner_size, kMaxIntermediateSize));
  const auto last = static_cast<size_t>(shape->layer_count);
  ROUNDHOUSE_CHECK((shape->sliding_layers >> last).none());
  ROUNDHOUSE_CHECK((shape->dense_layers >> last).none());
  for (int64_t layer = 0; layer < shape->layer_count; ++layer) {
    ROUNDHOUSE_CHECK(shape->LayerParameters(layer) >=
                     shape->ActiveMatrixElements(layer));
    ROUNDHOUSE_CHECK(shape->most_layer_parameters() >=
                     shape->LayerParameters(layer));
  }
  ROUNDHOUSE_CHECK(shape->parameter_count() > shape->most_layer_parameters());
  return 0;
}
