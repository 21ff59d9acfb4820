#include "server/run/best_model.h"

#include "absl/strings/match.h"
#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

class BestModelTest : public JobPartsTest {
 protected:
  // Steps 2, 4 and 6 were evaluated so, and 6 was the last one.
  void Start(const std::string& fields, const std::vector<double>& losses) {
    best_.reset();
    cycle_.reset();
    loader_.reset();
    Prepare(
        absl::StrCat("max_steps: 6\neval_steps: 2\nsave_steps: 2\n", fields));
    Allocate();
    marks_ = {.total = 6, .completed = 6, .begun = 6, .reduced = 6};
    history_ = std::make_unique<JobHistory>(options_->spec.spec(), 3, "/job");
    loader_ = std::make_unique<WeightsLoader>(WeightsLoader::Surroundings{
        *memory_, *operation_, nullptr, options_->model, *background_});
    cycle_ = std::make_unique<EvaluationCycle>(
        EvaluationCycle::Surroundings{*loop_, *arena_, *pool_, evaluated_,
                                      *history_, events_},
        *options_,
        EvaluationCycle::Calls{.validate = [] {},
                               .units = {},
                               .ending = [] { return false; },
                               .resting = [] { return false; },
                               .over = [](EvaluationCycle::Loss) {},
                               .sampled = [] {}});
    for (size_t i = 0; i < losses.size(); ++i) {
      evaluated_.total = 6;
      evaluated_.completed = evaluated_.begun =
          2 * (static_cast<int64_t>(i) + 1);
      cycle_->OnValidated(losses[i]);
    }
    best_ = std::make_unique<BestModel>(
        BestModel::Surroundings{*background_, *loader_, *cycle_, *history_,
                                marks_, events_},
        *options_,
        BestModel::Calls{.ending = [this] { return ending_; },
                         .parts =
                             [this](const std::string&, int64_t) {
                               return absl::StatusOr<std::vector<FilePart>>(
                                   parts_);
                             },
                         .over =
                             [this](const absl::Status& status) {
                               ++over_;
                               status_ = status;
                               End();
                             }});
  }

  StepMarks marks_, evaluated_;
  std::unique_ptr<JobHistory> history_;
  std::unique_ptr<WeightsLoader> loader_;
  std::unique_ptr<EvaluationCycle> cycle_;
  std::unique_ptr<BestModel> best_;
  absl::StatusOr<std::vector<FilePart>> parts_ = std::vector<FilePart>();
  bool ending_ = false;
  int over_ = 0;
  absl::Status status_;
};

TEST_F(BestModelTest, TheLastModelNeedsNoLoading) {
  for (const char* fields : {"", "load_best_model_at_end: true"}) {
    const bool wanted = *fields != 0;
    Start(fields,
          wanted ? std::vector<double>{3, 2, 1} : std::vector<double>{1, 2, 3});
    over_ = 0;
    best_->Load();
    EXPECT_EQ(over_, 1);
    EXPECT_TRUE(status_.ok());
    EXPECT_FALSE(best_->step_in_arena().has_value());
    EXPECT_EQ(best_->lost(), "");
  }
}

TEST_F(BestModelTest, ABestModelThatIsLostLeavesTheNextBestThatThereIs) {
  Start("load_best_model_at_end: true", {1, 2, 3});
  // No checkpoint is there at all: the last one is in the arena.
  Run([&] { best_->Load(); });
  EXPECT_EQ(over_, 1);
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_FALSE(best_->step_in_arena().has_value());
  EXPECT_EQ(cycle_->best(), (Evaluation{6, 3}));
  EXPECT_TRUE(absl::StartsWith(
      best_->lost(),
      "load_best_model_at_end: the best model, of step 2, is lost: "))
      << best_->lost();
  EXPECT_EQ(events_.corrupt, std::vector<std::string>{best_->lost()});
  EXPECT_EQ(events_.warnings, std::vector<std::string>{best_->lost()});
}

TEST_F(BestModelTest, AJobThatEndsMeanwhileIsToldNothing) {
  Start("load_best_model_at_end: true", {1, 2, 3});
  Run([&] {
    best_->Load();
    ending_ = true;
    background_->Run([] { return absl::OkStatus(); },
                     [this](absl::Status) { End(); });
  });
  EXPECT_EQ(over_, 0);
  EXPECT_EQ(best_->lost(), "");
}

}  // namespace
}  // namespace roundhouse
