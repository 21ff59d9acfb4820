#include "scheduler/plan/published_planner.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/plan/plan.h"

namespace roundhouse {
namespace {

using ::testing::HasSubstr;

constexpr PlanKind kKinds[] = {PlanKind::kInference, PlanKind::kTraining,
                               PlanKind::kFusedTraining};

LayerCost Layer(int64_t forward_ms, int64_t backward_ms,
                int64_t parameter_bytes = 0, int64_t trainable_bytes = 0) {
  LayerCost layer;
  layer.forward_time = absl::Milliseconds(forward_ms);
  layer.backward_time = absl::Milliseconds(backward_ms);
  layer.parameter_bytes = parameter_bytes;
  layer.trainable_bytes = trainable_bytes;
  return layer;
}

PlannerOptions Options(PlanKind kind, int devices = 1,
                       int64_t device_memory_bytes = 0) {
  PlannerOptions options;
  options.kind = kind;
  options.device_count = devices;
  options.device_memory_bytes = device_memory_bytes;
  return options;
}

std::string PlanText(const std::vector<LayerCost>& layers,
                     const PlannerOptions& options) {
  const auto plan = PublishedPlan(layers, options);
  return plan.ok() ? ToString(*plan) : plan.status().ToString();
}

void ExpectError(const std::vector<LayerCost>& layers,
                 const PlannerOptions& options, absl::StatusCode code,
                 const std::string& message) {
  const auto plan = PublishedPlan(layers, options);
  EXPECT_EQ(plan.status().code(), code) << plan.status();
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr(message));
}

// Plans by hand.

TEST(PublishedPlannerTest, PacksForwardFromTheBackAndBackwardFromTheFront) {
  // 8 is over 1.1 * 6, so the only cap is 6.
  const std::vector<LayerCost> layers = {Layer(2, 2), Layer(2, 2), Layer(2, 2),
                                         Layer(2, 2), Layer(6, 6)};
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kTraining)),
            "forward [0,0] [1,3] [4,4] backward [4,4] [3,3] [0,2]");
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kFusedTraining)),
            "forward [0,0] [1,3] backward fused [4,4] [3,3] [0,2]");
}

TEST(PublishedPlannerTest, InferenceDoesNotReadBackwardTimes) {
  std::vector<LayerCost> layers(6, Layer(1, 1));
  const auto fast = PublishedPlan(layers, Options(PlanKind::kInference));
  layers[3].backward_time = -absl::InfiniteDuration();
  const auto odd = PublishedPlan(layers, Options(PlanKind::kInference));
  ASSERT_TRUE(fast.ok());
  ASSERT_TRUE(odd.ok()) << odd.status();
  EXPECT_EQ(ToString(*odd), ToString(*fast));
}

TEST(PublishedPlannerTest, TheFusedStageTakesWhatFitsTheCap) {
  // Forward alone would take all of it; backward 3 + 4 fits under 7, the head
  // of the list does not.
  EXPECT_EQ(PlanText({Layer(1, 7), Layer(1, 3), Layer(1, 4)},
                     Options(PlanKind::kFusedTraining)),
            "forward [0,0] backward fused [1,2] [0,0]");
  EXPECT_EQ(PlanText({Layer(1, 0), Layer(1, 3), Layer(1, 4)},
                     Options(PlanKind::kFusedTraining)),
            "forward [0,1] backward fused [2,2] [0,1]");
  EXPECT_EQ(PlanText({Layer(4, 0), Layer(0, 0), Layer(1, 4)},
                     Options(PlanKind::kFusedTraining)),
            "forward backward fused [0,2]");
}

TEST(PublishedPlannerTest, ASumThatEqualsTheCapFits) {
  // 0.1 + 0.2 = 0.3 exactly, in whole nanoseconds.
  std::vector<LayerCost> layers(3);
  layers[0].forward_time = absl::Microseconds(100);
  layers[1].forward_time = absl::Microseconds(200);
  layers[2].forward_time = absl::Microseconds(300);
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kInference)),
            "forward [0,1] [2,2] backward");
}

TEST(PublishedPlannerTest, ThresholdIncludesItsEdge) {
  // Caps 100 (three stages, 300) and 110 (two stages, 220).
  const std::vector<LayerCost> layers = {Layer(100, 0), Layer(60, 0),
                                         Layer(50, 0)};
  PlannerOptions options = Options(PlanKind::kInference);
  EXPECT_EQ(PlanText(layers, options), "forward [0,0] [1,2] backward");
  options.upper_threshold_percent = 109;
  EXPECT_EQ(PlanText(layers, options), "forward [0,0] [1,1] [2,2] backward");
}

TEST(PublishedPlannerTest, TheSmallestCapWinsAmongEqualCosts) {
  // Cap 100 gives 11 stages, cap 110 gives 10: both cost 1100.
  std::vector<LayerCost> layers(9, Layer(100, 0));
  layers.push_back(Layer(60, 0));
  layers.push_back(Layer(50, 0));
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kInference)),
            "forward [0,0] [1,1] [2,2] [3,3] [4,4] [5,5] [6,6] [7,7] [8,8] "
            "[9,9] [10,10] backward");
  // One nanosecond off the larger cap makes it strictly cheaper.
  layers[10].forward_time -= absl::Nanoseconds(1);
  const auto plan = PublishedPlan(layers, Options(PlanKind::kInference));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->forward.size(), 10u);
}

TEST(PublishedPlannerTest, FewerStagesThanDevicesSaveNothing) {
  // With 3 devices, two stages under cap 110 cost as much as three would:
  // the smaller cap wins.
  const std::vector<LayerCost> layers = {Layer(100, 0), Layer(60, 0),
                                         Layer(50, 0)};
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kInference, 3)),
            "forward [0,0] [1,1] [2,2] backward");
}

// Memory.

TEST(StageLimitBytesTest, IsThreeTenthsRoundedDown) {
  EXPECT_EQ(StageLimitBytes(0), 0);
  EXPECT_EQ(StageLimitBytes(3), 0);
  EXPECT_EQ(StageLimitBytes(4), 1);
  EXPECT_EQ(StageLimitBytes(10), 3);
  EXPECT_EQ(StageLimitBytes(19), 5);
  EXPECT_EQ(StageLimitBytes(24LL << 30), 7730941132);
  EXPECT_EQ(StageLimitBytes(std::numeric_limits<int64_t>::max()),
            2767011611056432742);
}

TEST(PublishedPlannerMemoryTest, ClosesAStageAtTheLimit) {
  // By time alone everything goes into one stage, under cap 106.
  std::vector<LayerCost> layers(6, Layer(1, 1, 10));
  layers.push_back(Layer(100, 100, 10));
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kInference, 1, 1000)),
            "forward [0,6] backward");
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kInference, 1, 100)),
            "forward [0,2] [3,5] [6,6] backward");
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kInference, 1, 99)),
            "forward [0,1] [2,3] [4,5] [6,6] backward");
}

TEST(PublishedPlannerMemoryTest, OnlyBackwardStagesHoldGradients) {
  std::vector<LayerCost> layers(4, Layer(1, 1, 10, 10));
  layers.push_back(Layer(100, 100, 10, 10));
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kTraining, 1, 134)),
            "forward [0,3] [4,4] backward [4,4] [2,3] [0,1]");
  // Frozen layers leave room for more of them in a stage.
  for (int i = 0; i < 4; ++i) {
    layers[i].trainable_bytes = 0;
  }
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kTraining, 1, 134)),
            "forward [0,3] [4,4] backward [4,4] [0,3]");
}

TEST(PublishedPlannerMemoryTest, TheFusedStageObeysTheLimit) {
  // The stage limit is 30 bytes: gradients count in the fused stage as well.
  std::vector<LayerCost> layers = {Layer(1, 9, 10, 10), Layer(1, 1, 10, 10),
                                   Layer(1, 1, 10, 10)};
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kFusedTraining, 1, 100)),
            "forward [0,1] backward fused [2,2] [1,1] [0,0]");
  layers[1].trainable_bytes = 0;
  EXPECT_EQ(PlanText(layers, Options(PlanKind::kFusedTraining, 1, 100)),
            "forward [0,0] backward fused [1,2] [0,0]");
}

TEST(PublishedPlannerMemoryTest, NamesTheFirstLayerThatCannotFit) {
  const std::vector<LayerCost> layers = {
      Layer(1, 1, 10, 10), Layer(1, 1, 20, 11), Layer(1, 1, 40, 0)};
  const auto code = absl::StatusCode::kResourceExhausted;
  for (const PlanKind kind : {PlanKind::kTraining, PlanKind::kFusedTraining}) {
    ExpectError(layers, Options(kind, 1, 100), code,
                "layer 1 needs 31 bytes of device memory (20 bytes of "
                "parameters, 11 bytes of gradients): a stage may hold 30 bytes "
                "on a device of 100 bytes");
    ExpectError(layers, Options(kind, 1, 104), code, "layer 2 needs 40 bytes");
  }
  ExpectError(layers, Options(PlanKind::kInference, 1, 100), code,
              "layer 2 needs 40 bytes of device memory (40 bytes of "
              "parameters, 0 bytes of gradients)");
  EXPECT_TRUE(
      PublishedPlan(layers, Options(PlanKind::kFusedTraining, 1, 134)).ok());
}

// Arguments.

TEST(PublishedPlannerArgumentsTest, RefusesTimesOutsideTheRange) {
  const auto code = absl::StatusCode::kInvalidArgument;
  const PlannerOptions options = Options(PlanKind::kTraining);
  std::vector<LayerCost> layers(3, Layer(1, 1));
  layers[2].backward_time = -absl::Nanoseconds(1);
  ExpectError(layers, options, code, "layer 2: backward_time is -1ns");
  layers[2].backward_time = kMaxLayerTime + absl::Nanoseconds(1);
  ExpectError(layers, options, code, "layer 2: backward_time is 24h");
  layers[1].forward_time = absl::InfiniteDuration();
  ExpectError(layers, options, code, "layer 1: forward_time is inf");
  ExpectError({Layer(0, 0), Layer(0, 0)}, options, code, "no layer takes");
}

TEST(PublishedPlannerArgumentsTest, RefusesBytesOutsideTheRange) {
  const auto code = absl::StatusCode::kInvalidArgument;
  const PlannerOptions options = Options(PlanKind::kTraining, 1, 1 << 30);
  const int64_t huge = std::numeric_limits<int64_t>::max();
  ExpectError({Layer(1, 1), Layer(1, 1, -1)}, options, code,
              "layer 1: parameter_bytes is -1");
  ExpectError({Layer(1, 1, 1, -2)}, options, code,
              "layer 0: trainable_bytes is -2");
  ExpectError({Layer(1, 1, huge)}, options, code, "parameter_bytes is 92");
  ExpectError({Layer(1, 1, 1, huge)}, options, code, "trainable_bytes is 92");
}

TEST(PublishedPlannerArgumentsTest, RefusesOptionsOutsideTheRange) {
  const auto code = absl::StatusCode::kInvalidArgument;
  const std::vector<LayerCost> layers = {Layer(1, 1)};
  PlannerOptions options = Options(PlanKind::kTraining);
  ExpectError({}, options, code, "the number of layers is 0");
  ExpectError(std::vector<LayerCost>(kMaxPlanLayers + 1, Layer(1, 1)), options,
              code, "the number of layers is 513");
  for (const int devices : {0, -4, kMaxPlanDevices + 1}) {
    ExpectError(layers, Options(PlanKind::kTraining, devices), code,
                "device_count is ");
  }
  ExpectError(layers, Options(PlanKind::kTraining, 1, -1), code,
              "device_memory_bytes is -1");
  for (const int percent : {0, 99, 201}) {
    options.upper_threshold_percent = percent;
    ExpectError(layers, options, code, "upper_threshold_percent is ");
  }
}

TEST(PublishedPlannerArgumentsTest, ExtremesDoNotOverflow) {
  LayerCost longest;
  longest.forward_time = kMaxLayerTime;
  longest.backward_time = kMaxLayerTime;
  PlannerOptions options = Options(PlanKind::kTraining, kMaxPlanDevices);
  options.upper_threshold_percent = 200;
  const auto plan =
      PublishedPlan(std::vector<LayerCost>(kMaxPlanLayers, longest), options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // One layer a stage fills all 1,024 devices at half the cap of two layers.
  EXPECT_EQ(plan->forward.size(), static_cast<size_t>(kMaxPlanLayers));
  EXPECT_EQ(plan->backward.size(), static_cast<size_t>(kMaxPlanLayers));
}

// Properties over random lists, against an oracle that shares no code and no
// method with the planner: it finds the fewest stages by dynamic programming.

struct Case {
  std::vector<LayerCost> layers;
  PlannerOptions options;
};

// Small integer milliseconds, so that sums tie often; memory between barely
// enough for the largest layer and plenty.
Case RandomCase(std::mt19937_64* rng, PlanKind kind) {
  const auto draw = [rng](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(*rng);
  };
  Case result;
  const int layer_count = static_cast<int>(draw(1, 24));
  int64_t largest = 1;
  for (int i = 0; i < layer_count; ++i) {
    const int64_t forward = draw(0, 12);
    const int64_t bytes = draw(0, 50);
    const int64_t trainable = draw(0, 2) == 0 ? 0 : bytes;
    result.layers.push_back(
        Layer(forward, forward + draw(1, 20), bytes, trainable));
    const bool trains = kind != PlanKind::kInference;
    largest = std::max(largest, bytes + (trains ? trainable : 0));
  }
  // The planner must never see a list in which nothing takes time.
  result.layers[0].forward_time += absl::Milliseconds(1);
  const int64_t fitting_memory = largest * 10 / 3 + 1;
  result.options = Options(kind, static_cast<int>(draw(1, 40)),
                           draw(fitting_memory, fitting_memory * 4));
  result.options.upper_threshold_percent = static_cast<int>(draw(100, 200));
  return result;
}

// A stage as the oracle sees it.
struct Sums {
  int64_t milliseconds = 0;
  int64_t bytes = 0;
};

Sums StageSums(const std::vector<LayerCost>& layers, int first, int last,
               bool backward) {
  Sums sums;
  for (int i = first; i <= last; ++i) {
    const LayerCost& layer = layers[i];
    sums.milliseconds += absl::ToInt64Milliseconds(
        backward ? layer.backward_time : layer.forward_time);
    sums.bytes +=
        layer.parameter_bytes + (backward ? layer.trainable_bytes : 0);
  }
  return sums;
}

bool StageFits(const Case& c, int first, int last, bool backward, int64_t cap) {
  const Sums sums = StageSums(c.layers, first, last, backward);
  return sums.milliseconds <= cap &&
         10 * sums.bytes <= 3 * c.options.device_memory_bytes;
}

// The fewest stages that layers 0..end-1 can be cut into.
int FewestStages(const Case& c, int end, bool backward, int64_t cap) {
  std::vector<int> fewest(end + 1, 1 << 20);
  fewest[0] = 0;
  for (int last = 0; last < end; ++last) {
    for (int first = 0; first <= last; ++first) {
      if (StageFits(c, first, last, backward, cap)) {
        fewest[last + 1] = std::min(fewest[last + 1], fewest[first] + 1);
      }
    }
  }
  return fewest[end];
}

std::set<int64_t> OracleCaps(const Case& c) {
  const int layer_count = static_cast<int>(c.layers.size());
  const bool trains = c.options.kind != PlanKind::kInference;
  std::set<int64_t> sums;
  int64_t longest = 0;
  for (int direction = 0; direction <= (trains ? 1 : 0); ++direction) {
    for (int first = 0; first < layer_count; ++first) {
      for (int last = first; last < layer_count; ++last) {
        const int64_t sum =
            StageSums(c.layers, first, last, direction == 1).milliseconds;
        sums.insert(sum);
        longest = first == last ? std::max(longest, sum) : longest;
      }
    }
  }
  std::set<int64_t> caps;
  for (const int64_t sum : sums) {
    if (sum >= longest &&
        sum * 100 <= longest * c.options.upper_threshold_percent) {
      caps.insert(sum);
    }
  }
  return caps;
}

int LongestTail(const Case& c, int64_t cap) {
  const int layer_count = static_cast<int>(c.layers.size());
  int first = 0;
  while (!StageFits(c, first, layer_count - 1, true, cap)) {
    ++first;
  }
  return first;
}

int64_t OracleCost(const Case& c, int64_t cap) {
  const PlanKind kind = c.options.kind;
  const bool fused = kind == PlanKind::kFusedTraining;
  const int end =
      fused ? LongestTail(c, cap) : static_cast<int>(c.layers.size());
  int64_t stages = FewestStages(c, end, false, cap) + (fused ? 1 : 0);
  if (kind != PlanKind::kInference) {
    stages += FewestStages(c, end, true, cap);
  }
  return std::max<int64_t>(stages, c.options.device_count) * cap;
}

// The smallest cap of minimal cost.
int64_t OracleCap(const Case& c) {
  int64_t best_cap = 0;
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (const int64_t cap : OracleCaps(c)) {
    const int64_t cost = OracleCost(c, cap);
    if (cost < best_cost) {
      best_cost = cost;
      best_cap = cap;
    }
  }
  return best_cap;
}

std::string Describe(const Case& c) {
  std::string text =
      "devices " + std::to_string(c.options.device_count) + " memory " +
      std::to_string(c.options.device_memory_bytes) + " percent " +
      std::to_string(c.options.upper_threshold_percent) + ":";
  for (const LayerCost& layer : c.layers) {
    text += " " + absl::FormatDuration(layer.forward_time) + "/" +
            absl::FormatDuration(layer.backward_time) + "/" +
            std::to_string(layer.parameter_bytes) + "/" +
            std::to_string(layer.trainable_bytes);
  }
  return text;
}

// Every stage fits, and could not have taken one layer more from the side
// that was packed later.  Counts the stages that memory alone closed.
int CheckStages(const Case& c, const Plan& plan, int64_t cap) {
  int closed_by_memory = 0;
  const auto check = [&](int first, int last, bool backward, int next) {
    EXPECT_TRUE(StageFits(c, first, last, backward, cap))
        << "stage " << first << ".." << last;
    if (next < 0) {
      return;
    }
    const int from = std::min(first, next);
    const int to = std::max(last, next);
    EXPECT_FALSE(StageFits(c, from, to, backward, cap))
        << "stage " << first << ".." << last << " closed early";
    closed_by_memory +=
        StageSums(c.layers, from, to, backward).milliseconds <= cap ? 1 : 0;
  };
  for (const LayerRange& stage : plan.forward) {
    check(stage.first, stage.last, false, stage.first - 1);
  }
  const int packed_end =
      plan.fused ? plan.backward[0].first : static_cast<int>(c.layers.size());
  for (size_t i = 0; i < plan.backward.size(); ++i) {
    const LayerRange& stage = plan.backward[i];
    const bool fused_stage = plan.fused && i == 0;
    const int above = stage.last + 1 < packed_end ? stage.last + 1 : -1;
    check(stage.first, stage.last, true, fused_stage ? stage.first - 1 : above);
  }
  return closed_by_memory;
}

class PublishedPlannerPropertyTest : public ::testing::TestWithParam<PlanKind> {
};

TEST_P(PublishedPlannerPropertyTest, EqualsTheOracle) {
  constexpr uint64_t kSeed = 20260427;
  constexpr int kCases = 1500;
  std::mt19937_64 rng(kSeed);
  int closed_by_memory = 0;
  int above_the_least_cap = 0;
  for (int i = 0; i < kCases && !HasFailure(); ++i) {
    const Case c = RandomCase(&rng, GetParam());
    SCOPED_TRACE(Describe(c));
    const auto plan = PublishedPlan(c.layers, c.options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    SCOPED_TRACE(ToString(*plan));
    EXPECT_EQ(plan->fused, GetParam() == PlanKind::kFusedTraining);
    EXPECT_EQ(plan->backward.empty(), GetParam() == PlanKind::kInference);
    const absl::Status valid =
        CheckPlan(*plan, static_cast<int>(c.layers.size()));
    ASSERT_TRUE(valid.ok()) << valid;
    const int64_t cap = OracleCap(c);
    const auto stages =
        static_cast<int64_t>(plan->forward.size() + plan->backward.size());
    EXPECT_EQ(std::max<int64_t>(stages, c.options.device_count) * cap,
              OracleCost(c, cap));
    closed_by_memory += CheckStages(c, *plan, cap);
    above_the_least_cap += cap > *OracleCaps(c).begin() ? 1 : 0;
  }
  // The cases reach what they are there for.
  EXPECT_GT(closed_by_memory, kCases / 10);
  EXPECT_GT(above_the_least_cap, kCases / 20);
}

TEST_P(PublishedPlannerPropertyTest, TooLittleMemoryNamesTheFirstLayerOver) {
  constexpr uint64_t kSeed = 42;
  std::mt19937_64 rng(kSeed);
  const bool trains = GetParam() != PlanKind::kInference;
  int refused = 0;
  for (int i = 0; i < 1000 && !HasFailure(); ++i) {
    Case c = RandomCase(&rng, GetParam());
    c.options.device_memory_bytes /= 3;
    SCOPED_TRACE(Describe(c));
    int first_over = -1;
    for (int layer = static_cast<int>(c.layers.size()) - 1; layer >= 0;
         --layer) {
      const int64_t bytes = StageSums(c.layers, layer, layer, trains).bytes;
      if (10 * bytes > 3 * c.options.device_memory_bytes) {
        first_over = layer;
      }
    }
    const auto plan = PublishedPlan(c.layers, c.options);
    EXPECT_EQ(plan.ok(), first_over < 0) << plan.status();
    if (first_over >= 0) {
      ++refused;
      ExpectError(c.layers, c.options, absl::StatusCode::kResourceExhausted,
                  "layer " + std::to_string(first_over) + " needs ");
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 900);
}

TEST_P(PublishedPlannerPropertyTest, OnlyRatiosOfTimesMatter) {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    Case c = RandomCase(&rng, GetParam());
    const std::string plan = PlanText(c.layers, c.options);
    for (LayerCost& layer : c.layers) {
      layer.forward_time *= 977;
      layer.backward_time *= 977;
    }
    EXPECT_EQ(PlanText(c.layers, c.options), plan) << Describe(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PublishedPlannerPropertyTest,
                         ::testing::ValuesIn(kKinds));

}  // namespace
}  // namespace roundhouse
