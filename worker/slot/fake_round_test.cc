#include "gtest/gtest.h"
#include "worker/slot/fake_stage_run.h"
#include "worker/slot/round_check.h"

namespace roundhouse::worker {
namespace {

class FakeRoundTest : public testing::TestWithParam<RoundShape> {};

TEST_P(FakeRoundTest, EqualsTheSameRoundWithoutSlots) {
  for (int devices = 1; devices <= 3; ++devices) {
    SCOPED_TRACE(std::to_string(devices) + " devices");
    CheckWholeRound(GetParam(), devices, FakeStageRuns());
  }
}

TEST_P(FakeRoundTest, AlsoInSmallChunksOverASlowLink) {
  TestWorkerOptions options;
  options.runner.chunk_bytes = 1000;
  options.runner.link_gbps = 0.5;
  CheckWholeRound(GetParam(), 2, FakeStageRuns(), options);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FakeRoundTest,
                         testing::ValuesIn(AllRoundShapes()),
                         [](const testing::TestParamInfo<RoundShape>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace roundhouse::worker
