#include "scheduler/search/jobs_together.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/simulate/checker.h"

namespace roundhouse {
namespace {

ModelCosts ModelOf(const std::string& file, const std::string& name) {
  const std::string path = "scheduler/testdata/" + file;
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)),
                         std::istreambuf_iterator<char>());
  const auto models = ParseModelCosts(path, text);
  for (const ModelCosts& model : *models) {
    if (model.name == name) return model;
  }
  ADD_FAILURE() << name;
  return {};
}

class JobsTogetherTest : public testing::Test {
 protected:
  JobsTogetherTest() { options_.machine.devices.resize(8); }

  Together Run(const TogetherJob& first) {
    auto result = SimulateTogether(first, lora_, options_);
    EXPECT_TRUE(result.ok()) << result.status();
    const StepsCheckOptions of_first{options_.machine, first.micro_batches,
                                     options_.steps, first.rounds,
                                     options_.updates};
    const StepsCheckOptions of_second{options_.machine, lora_.micro_batches,
                                      result->second_steps, lora_.rounds,
                                      options_.updates};
    EXPECT_EQ(CheckJobsSchedule(result->schedule, {{&first.costs, of_first},
                                                   {&lora_.costs, of_second}}),
              absl::OkStatus());
    return *std::move(result);
  }

  const TogetherJob lora_ = {ModelOf("derived_inputs.csv", "qwen3-1.7b-lora"),
                             32, 2};
  TogetherOptions options_;
};

class EitherUpdatesTest : public JobsTogetherTest,
                          public testing::WithParamInterface<Updates> {
 protected:
  void ExpectAims(const Together& both) {
    EXPECT_LE(both.first_ns, 1.03 * both.first_alone_ns);
    EXPECT_GE(both.goodput, 1.10);
    EXPECT_LE(both.ready_idle_percent, 1);
  }
};

TEST_P(EitherUpdatesTest, ALongStepsBubblesAreFilled) {
  options_.updates = GetParam();
  ExpectAims(Run({ModelOf("derived_inputs.csv", "llama3.1-8b-1seq"), 8, 1}));
}

TEST_P(EitherUpdatesTest, AJobBoundByItsPipelineIsHardlyDelayed) {
  options_.updates = GetParam();
  ExpectAims(Run({ModelOf("bubble_inputs.csv", "qwen3-235b"), 4, 1}));
}

INSTANTIATE_TEST_SUITE_P(Updates, EitherUpdatesTest,
                         testing::Values(Updates::kAsReduced,
                                         Updates::kClipped));

TEST_F(JobsTogetherTest, WhereThereIsNoRoomForTheSecondThereIsNoPlan) {
  options_.second_bytes = 0;
  options_.steps = 1;
  // Two of its layers, the one that runs and the next, are most of a device.
  for (SimulatedDevice& device : options_.machine.devices) {
    device.memory_bytes = int64_t{16} << 30;
  }
  const TogetherJob large = {ModelOf("bubble_inputs.csv", "qwen3-235b"), 4, 1};
  EXPECT_EQ(SimulateTogether(large, large, options_).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace roundhouse
