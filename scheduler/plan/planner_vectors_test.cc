// The planner reproduces every plan of testdata/planner_vectors.json, which
// was made by running the published implementation.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/cost_model.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/published_planner.h"

namespace roundhouse {
namespace {

using nlohmann::json;

constexpr char kVectors[] = "scheduler/testdata/planner_vectors.json";
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

json ReadVectors() {
  std::ifstream file(kVectors);
  return json::parse(file);
}

// Times of the vectors are plain milliseconds.
absl::Duration Milliseconds(const json& value) {
  return absl::Nanoseconds(std::llround(value.get<double>() * 1e6));
}

std::vector<LayerCost> MeasuredLayers(const json& vector) {
  std::vector<LayerCost> layers;
  for (size_t i = 0; i < vector.at("fwd").size(); ++i) {
    LayerCost layer;
    layer.forward_time = Milliseconds(vector.at("fwd").at(i));
    layer.backward_time = Milliseconds(vector.at("bwd_total").at(i));
    layer.parameter_bytes =
        std::llround(vector.at("size_gb").at(i).get<double>() * kGib);
    layer.trainable_bytes = layer.parameter_bytes;
    layers.push_back(layer);
  }
  return layers;
}

// A vector without times is planned from the cost model's cold values.
std::vector<LayerCost> ColdLayers(const json& vector) {
  const auto bytes = vector.at("layer_bytes").get<std::vector<int64_t>>();
  const CostModel cold(bytes);
  std::vector<LayerCost> layers;
  for (int i = 0; i < cold.layer_count(); ++i) {
    LayerCost layer;
    layer.forward_time = cold.Recompute(i);
    layer.backward_time = cold.Backward(i);
    layer.parameter_bytes = bytes[i];
    layer.trainable_bytes = vector.at("trainable").get<bool>() ? bytes[i] : 0;
    layers.push_back(layer);
  }
  return layers;
}

PlannerOptions Options(const json& vector, PlanKind kind) {
  PlannerOptions options;
  options.kind = kind;
  options.device_count = vector.at("n_devices").get<int>();
  options.device_memory_bytes =
      std::llround(vector.at("gib").get<double>() * kGib);
  options.upper_threshold_percent = static_cast<int>(
      std::lround(vector.at("upper_threshold").get<double>() * 100));
  return options;
}

std::vector<LayerRange> Ranges(const json& pairs) {
  std::vector<LayerRange> ranges;
  for (const json& pair : pairs) {
    ranges.push_back({pair.at(0).get<int>(), pair.at(1).get<int>()});
  }
  return ranges;
}

void ExpectPublishedPlan(const json& vector, const std::string& key,
                         PlanKind kind) {
  SCOPED_TRACE(vector.at("name").get<std::string>() + ", " +
               vector.at("n_devices").dump() + " devices, " + key);
  Plan published;
  published.forward = Ranges(vector.at("plans").at(key).at("fwd"));
  published.backward = Ranges(vector.at("plans").at(key).at("bwd"));
  published.fused = kind == PlanKind::kFusedTraining;
  const auto layers =
      vector.contains("fwd") ? MeasuredLayers(vector) : ColdLayers(vector);
  const auto plan = PublishedPlan(layers, Options(vector, kind));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(ToString(*plan), ToString(published));
  EXPECT_TRUE(*plan == published);
  EXPECT_TRUE(CheckPlan(*plan, static_cast<int>(layers.size())).ok());
}

TEST(PlannerVectorsTest, EveryPublishedPlanIsReproduced) {
  const json vectors = ReadVectors();
  ASSERT_EQ(vectors.size(), 15u);
  for (const json& vector : vectors) {
    ASSERT_EQ(vector.at("plans").size(), 3u);
    ExpectPublishedPlan(vector, "infer", PlanKind::kInference);
    ExpectPublishedPlan(vector, "train", PlanKind::kTraining);
    ExpectPublishedPlan(vector, "fused", PlanKind::kFusedTraining);
  }
}

}  // namespace
}  // namespace roundhouse
