#include "server/run/weights_loader.h"

#include "server/planning/job_needs.h"
#include "server/testing/job_parts_test_fixture.h"

namespace roundhouse {
namespace {

class WeightsLoaderTest : public JobPartsTest {
 protected:
  void Start(const std::string& method) {
    method_ = method;
    Prepare("max_steps: 1\n");
    bases_ = std::make_unique<BaseCache>(*arena_);
    options_->bases = bases_.get();
    WriteTestFile(root_ + "/weights", "w");
    for (const UnitSpec& unit : ModelUnits(options_->model.config)) {
      auto& sources = options_->model.sources.emplace_back();
      for (const ParameterSpec& spec : unit.parameters) {
        sources.push_back({{"", root_ + "/weights", {.size_bytes = 1}},
                           0,
                           static_cast<uint64_t>(spec.element_count) * 4,
                           DType::kF32});
      }
    }
    options_->base_key =
        BaseKey(options_->model,
                TrainedOf(options_->spec, options_->model.config).dtype);
    Allocate();
    loader_ = std::make_unique<WeightsLoader>(WeightsLoader::Surroundings{
        *memory_, *operation_, bases_.get(), options_->model, *background_});
  }
  BaseWeights& Base() { return *memory_->state().base(); }
  WeightsLoader::Weights Drawn() {
    return {wire::FileOpKind::kInit, InitParts(memory_->state())};
  }
  WeightsLoader::Calls Calls() {
    return {
        .stopped = [this] { return stopped_; },
        .base_is_there = [this] { seen_.push_back("base is there"); },
        .base_failed =
            [this](const absl::Status& status) {
              seen_.push_back(absl::StrCat(
                  "base failed: ", absl::StatusCodeToString(status.code())));
              End();
            },
        .over =
            [this](const absl::Status& status) {
              seen_.push_back(absl::StrCat(
                  "over: ", absl::StatusCodeToString(status.code())));
              End();
            }};
  }

  std::unique_ptr<BaseCache> bases_;
  std::unique_ptr<WeightsLoader> loader_;
  bool stopped_ = false;
  std::vector<std::string> seen_;
};

TEST_F(WeightsLoaderTest, WithoutABaseOnlyWhatTrainsIsLoaded) {
  Start("model_init: random\n");
  Run([&] { loader_->Load(Drawn(), Calls()); });
  EXPECT_EQ(seen_, std::vector<std::string>{"over: OK"});
}

TEST_F(WeightsLoaderTest, ABaseThatIsThereIsNotLoadedAgain) {
  Start("method: lora\n");
  BaseWeights& base = Base();
  base.Join([](BaseWeights::Grant) {});
  base.LoadDone();  // by another job
  Run([&] { loader_->Load(Drawn(), Calls()); });
  EXPECT_EQ(seen_, (std::vector<std::string>{"base is there", "over: OK"}));
}

TEST_F(WeightsLoaderTest, WhoWaitsForABaseLoadsItWhenTheOtherDoesNot) {
  Start("method: lora\n");
  BaseWeights& base = Base();
  const BaseWeights::Ticket other = base.Join([](BaseWeights::Grant) {});
  stopped_ = true;  // once it has loaded it
  Run([&] {
    loader_->Load(Drawn(), Calls());
    EXPECT_TRUE(seen_.empty());
    base.Leave(other);
  });
  EXPECT_EQ(seen_, std::vector<std::string>{"base failed: CANCELLED"});
}

TEST_F(WeightsLoaderTest, WhoStopsLeavesTheBaseToOthers) {
  Start("method: lora\n");
  BaseWeights& base = Base();
  const BaseWeights::Ticket other = base.Join([](BaseWeights::Grant) {});
  loader_->Load(Drawn(), Calls());
  bool next = false;
  base.Join([&](BaseWeights::Grant grant) {
    next = grant == BaseWeights::Grant::kLoad;
  });
  loader_->Stop();
  base.Leave(other);
  EXPECT_TRUE(next);
  EXPECT_TRUE(seen_.empty());
}

}  // namespace
}  // namespace roundhouse
