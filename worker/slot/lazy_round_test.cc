// Rounds on a device that does its work only when somebody waits for it: what
// the worker gives back, reuses or reads too early has other bytes.
#include "gtest/gtest.h"
#include "worker/device/lazy_device.h"
#include "worker/slot/fake_stage_run.h"
#include "worker/slot/lazy_stage_run.h"
#include "worker/slot/round_check.h"

namespace roundhouse::worker {
namespace {

class LazyRoundTest : public testing::TestWithParam<RoundShape> {};

TEST_P(LazyRoundTest, EqualsTheSameRoundWithoutSlots) {
  TestWorkerOptions options;
  options.make_device = NewLazyDevice;
  options.runner.chunk_bytes = 1000;
  for (int devices = 1; devices <= 2; ++devices) {
    SCOPED_TRACE(std::to_string(devices) + " devices");
    CheckWholeRound(GetParam(), devices, LazyStageRuns(FakeStageRuns()),
                    options);
  }
}

TEST(LazyWorkerTest, HeartbeatsSayHowMuchOfTheArenaIsPinned) {
  SlotTestJob job(SmallConfig(4, true), AllRoundShapes().front(), 1);
  TestWorkerOptions options;
  options.make_device = NewLazyDevice;
  options.runner.make_run = LazyStageRuns(FakeStageRuns());
  TestWorker worker(job, 0, options);
  worker.AwaitPinned(job.arena().size_bytes());
  EXPECT_EQ(PinnedOf(worker.device()).bytes(), job.arena().size_bytes());
}

INSTANTIATE_TEST_SUITE_P(Shapes, LazyRoundTest,
                         testing::ValuesIn(AllRoundShapes()),
                         [](const testing::TestParamInfo<RoundShape>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace roundhouse::worker
