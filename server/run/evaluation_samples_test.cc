// When eval_prompts are due, by the lines of a checkpoint.  What becomes of
// them between steps is in runner_samples_test.cc.
#include "server/run/evaluation_samples.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/testing/test_model.h"
#include "server/workers/process_pool.h"

namespace roundhouse {
namespace {

class EvaluationSamplesTest : public testing::Test {
 protected:
  EvaluationSamplesTest()
      : loop_(*EventLoop::Create()), arena_(*HostArena::Create(1 << 20, 3)) {
    ProcessPoolOptions options;
    options.device_count = 1;
    pool_ = *ProcessPool::Create(*loop_, *arena_, options);
  }

  std::unique_ptr<EvaluationSamples> Make(std::vector<std::string> prompts) {
    return std::make_unique<EvaluationSamples>(
        *loop_, *arena_, *pool_,
        EvaluationSamplesOptions{.job = 1,
                                 .model = TestModel(false),
                                 .prompts = std::move(prompts),
                                 .eval_steps = 2});
  }
  static std::string Line(int64_t step, int index, const std::string& prompt) {
    return absl::StrCat("{\"step\":", step, ",\"index\":", index,
                        ",\"prompt\":\"", prompt,
                        "\",\"completion\":\"c\",\"tokens\":[1]}");
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<ProcessPool> pool_;
};

TEST_F(EvaluationSamplesTest, WithoutPromptsNoneAreDue) {
  const auto samples = Make({});
  for (int64_t step = 0; step <= 4; ++step) {
    EXPECT_FALSE(samples->DueAfter(step, step == 4));
  }
}

TEST_F(EvaluationSamplesTest, FirstLastAndEveryEvalSteps) {
  const auto samples = Make({"a"});
  EXPECT_TRUE(samples->DueAfter(0, false));
  samples->GoOnFrom(Line(0, 0, "a") + "\n", 0);
  EXPECT_FALSE(samples->DueAfter(0, false));
  EXPECT_FALSE(samples->DueAfter(1, false));
  EXPECT_TRUE(samples->DueAfter(2, false));
  EXPECT_TRUE(samples->DueAfter(3, true));
}

TEST_F(EvaluationSamplesTest, LinesOfLaterStepsAndTornOnesAreLeftOut) {
  const auto samples = Make({"a", "b"});
  const std::string kept[] = {Line(0, 0, "a"), Line(0, 1, "b"), Line(2, 0, "a"),
                              Line(2, 1, "b")};
  samples->GoOnFrom(
      absl::StrCat(kept[0], "\n", kept[1], "\n", kept[2], "\n", kept[3], "\n",
                   Line(4, 0, "a"), "\n{\"step\": 1}\n[]\n{\"st"),
      3);
  EXPECT_EQ(samples->lines(),
            std::vector<std::string>(std::begin(kept), std::end(kept)));
  EXPECT_FALSE(samples->DueAfter(2, false));
  EXPECT_TRUE(samples->DueAfter(3, true));
}

// Another job's checkpoint: its lines stay, and this one's prompts are due.
TEST_F(EvaluationSamplesTest, OtherPromptsAreNotThese) {
  const auto samples = Make({"a", "b"});
  samples->GoOnFrom(Line(2, 0, "a") + "\n" + Line(2, 1, "c") + "\n", 2);
  EXPECT_EQ(samples->lines().size(), 2u);
  EXPECT_TRUE(samples->DueAfter(2, false));
}

}  // namespace
}  // namespace roundhouse
