#include "tests/bench/fake_job.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/model/config.h"
#include "base/model/costs.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/bench/model_inputs.h"
#include "tests/fakes/layer_costs.h"

namespace roundhouse::bench {
namespace {

// The row of the published changed.
ModelCosts Costs() {
  ModelCosts costs;
  costs.name = "qwen3-1.7b";
  costs.layers = 28;
  costs.forward_ns = 7'429'000;
  costs.backward_ns = 15'831'000;
  costs.head_forward_ns = 22'065'500;
  costs.head_backward_ns = 43'707'000;
  costs.layer_bytes = 100'700'000;
  costs.head_bytes = 622'000'000;
  costs.tokens = 8192;
  costs.hidden = 2048;
  costs.heads = 16;
  costs.kv_heads = 8;
  costs.head_dim = 128;
  costs.inner = 6144;
  costs.experts_per_token = 1;
  return costs;
}

TEST(FakeJobTest, TheShrunkModelHasTheProportionsOfTheReal) {
  const auto text = FakeConfig(Costs());
  ASSERT_TRUE(text.ok()) << text.status();
  const auto config = ParseModelConfig(*text, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layer_count, 28);
  const auto real = [&](int64_t layer) {
    return static_cast<double>(LayerWeightBytes(*config, layer, DType::kBF16)) *
           static_cast<double>(kByteShrink) * 1e-9;
  };
  EXPECT_NEAR(real(0), 0.1007, 0.001);
  EXPECT_NEAR(real(28), 0.622, 0.001);
}

TEST(FakeJobTest, ItsCostsAreThoseOfTheInputs) {
  const auto costs = fakes::ParseLayerCosts(FakeCosts(Costs()), "costs", 1);
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->size(), 29u);
  EXPECT_EQ(costs->front(),
            (fakes::LayerCost{7'429'000, 7'429'000, 15'831'000}));
  EXPECT_EQ(costs->back(), (fakes::LayerCost{22'065'500, 0, 43'707'000}));
}

TEST(FakeJobTest, RefusesWhatDoesNotShrink) {
  ModelCosts changed = Costs();
  changed.hidden = 2880;
  changed.inner = 2884;
  EXPECT_EQ(std::string(FakeConfig(changed).status().message()),
            "qwen3-1.7b: inner is 2884, which 32 does not divide");
  changed = Costs();
  changed.experts_per_token = 8;
  EXPECT_NE(std::string(FakeConfig(changed).status().message())
                .find("experts_per_token is 8"),
            std::string::npos);
}

TEST(FakeJobTest, WritesWhatTheDaemonNeeds) {
  FakeJobOptions options;
  options.root = "/runfiles/tree";
  options.scratch = testing::TempDir() + "/fake_job";
  options.costs = Costs();
  options.plan = *ParsePlanJson(
      "{\"forward\": [[0, 24]], \"backward\": [[25, 28], [0, 24]]}", 28);
  options.scale = 2;
  const auto job = MakeFakeJob(options);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->last_step, 10);
  const auto has_flag = [&](const std::string& flag) {
    return std::find(job->flags.begin(), job->flags.end(), flag) !=
           job->flags.end();
  };
  EXPECT_TRUE(has_flag("--devices=cpu:8"));
  EXPECT_TRUE(has_flag("--link-gbps=0.0820312"));
  EXPECT_TRUE(has_flag("--device-memory=25165824"));
  const auto file = nlohmann::json::parse(Contents(job->run + "/job.yaml"));
  EXPECT_EQ(file["batch_size"], 64);
  EXPECT_EQ(file["max_length"], 64);
  EXPECT_EQ(file["plan"]["backward"][0][1], 28);
  EXPECT_EQ(
      nlohmann::json::parse(Contents(
          options.scratch + "/model/tokenizer.json"))["model"]["vocab"]["word"],
      2);
  EXPECT_EQ(nlohmann::json::parse(Contents(
                options.scratch + "/model/tokenizer_config.json"))["eos_token"],
            "<end>");
  const std::string script = Contents(options.scratch + "/worker.sh");
  EXPECT_NE(script.find("\"/runfiles/tree/tests/fakes/fake_worker\""),
            std::string::npos);
  EXPECT_NE(script.find("--cost-scale=2 "), std::string::npos);
  // 32 MiB of the real model's.  A bug: an activation waited for 256 of them.
  EXPECT_NE(script.find("--copy-chunk-bytes=32768 "), std::string::npos);
  std::filesystem::remove_all(options.scratch);
}

}  // namespace
}  // namespace roundhouse::bench
