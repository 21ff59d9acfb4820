#include <string>
#include <vector>

#include "base/convert.h"
#include "gtest/gtest.h"
#include "worker/model/sequential.h"
#include "worker/model/stage_run.h"
#include "worker/slot/round_check.h"

namespace roundhouse::worker {
namespace {

class ModelRoundTest : public testing::TestWithParam<RoundShape> {};

TEST_P(ModelRoundTest, EqualsTheSameRoundWithoutSlots) {
  SetComputeThreads(1);
  TestWorkerOptions options;
  options.runner.prepare_compute_thread = [] { SetComputeThreads(1); };
  for (int devices = 1; devices <= 3; ++devices) {
    SCOPED_TRACE(std::to_string(devices) + " devices");
    CheckWholeRound(GetParam(), devices, &StageRun::Create, options);
  }
}

// Every contribution that is a whole round's sum, against the plain loop.
void CompareWithSequential(SlotTestJob& job,
                           const std::vector<wire::RunSlot>& slots) {
  const RoundShape& shape = job.shape();
  SequentialOptions options;
  options.config = job.config();
  options.adapter = shape.adapter;
  options.seed = SlotTestJob::kJobSeed;
  options.dtype = shape.dtype;
  options.round_limit = shape.micro_batches;
  options.group_limit = shape.groups;
  auto trainer = *SequentialTrainer::Create(options);
  for (size_t u = 0; u < job.units().size(); ++u) {
    ASSERT_TRUE(
        trainer->SetUnit(static_cast<int>(u), job.master(u).data()).ok());
  }
  std::vector<SequentialBatch> batches;
  for (size_t m = 0; m < static_cast<size_t>(shape.micro_batches); ++m) {
    batches.push_back({SlotTestJob::kRows, SlotTestJob::kRowTokens,
                       job.tokens(m), job.labels(m), job.positions(m)});
  }
  trainer->SetCompletedSteps(SlotTestJob::kStep - 1);
  int compared = 0;
  ASSERT_TRUE(trainer->Step(batches, 1e-3).ok());
  for (const wire::RunSlot& slot : slots) {
    for (const wire::SlotContribution& given : slot.contributions) {
      // The tied matrix has another use, which the host adds.
      if (given.unit == 0 || given.group_count != slot.total_groups) continue;
      const std::string sum = job.Bytes(given.buffer);
      const DType dtype = slot.contribution_dtype;
      std::string wanted(sum.size(), '\0');
      FromF32(dtype, trainer->gradient(static_cast<int>(given.unit)),
              wanted.data(), wanted.size() / DTypeBytes(dtype));
      EXPECT_TRUE(sum == wanted) << "unit " << given.unit;
      ++compared;
    }
  }
  EXPECT_GE(compared, 4);  // a sum for each layer
}

TEST_P(ModelRoundTest, SumsAreThoseOfTheSequentialLoop) {
  SetComputeThreads(1);
  TestWorkerOptions options;
  options.runner.prepare_compute_thread = [] { SetComputeThreads(1); };
  RoundShape shape = GetParam();
  shape.largest_subtree = 1 << 20;
  CheckWholeRound(shape, 2, &StageRun::Create, options, &CompareWithSequential);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ModelRoundTest,
                         testing::ValuesIn(AllRoundShapes()),
                         [](const testing::TestParamInfo<RoundShape>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace roundhouse::worker
