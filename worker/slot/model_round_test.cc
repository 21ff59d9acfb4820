#include <algorithm>
#include <memory>
#include <string>
#include <variant>
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

// Every contribution that is a whole round's sum, against the plain loop, which
// goes by the round's picks where it is `given` them.
enum class Picks { kOwn, kGiven };
void CompareWithSequential(SlotTestJob& job,
                           const std::vector<wire::RunSlot>& slots,
                           Picks picks = Picks::kOwn) {
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
    batches.push_back(
        {.rows = SlotTestJob::kRows,
         .row_tokens = SlotTestJob::kRowTokens,
         .tokens = job.tokens(m),
         .labels = job.labels(m),
         .positions = job.positions(m),
         .picks = picks == Picks::kGiven ? job.picks(m) : nullptr});
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
  CheckWholeRound(shape, 2, &StageRun::Create, options,
                  [](SlotTestJob& job, const auto& slots) {
                    CompareWithSequential(job, slots);
                  });
}

// A layer with experts is fused, and a backward slot straddles two forward
// ones.
RoundShape Straddling() {
  RoundShape shape = {{{0, 0}, {1, 2}}, {{3, 4}, {0, 2}}, 4, 2};
  shape.experts = true;
  return shape;
}

class PicksTest : public testing::Test {
 protected:
  PicksTest() : job_(ConfigOf(Straddling()), Straddling(), 11) {
    SetComputeThreads(1);
    TestWorkerOptions options;
    options.runner.prepare_compute_thread = [] { SetComputeThreads(1); };
    options.runner.make_run = &StageRun::Create;
    for (int i = 0; i < 2; ++i) {
      workers_.push_back(std::make_unique<TestWorker>(job_, i, options));
    }
    job_.RaiseVersions();
    slots_ = job_.MakeRound(1);
  }

  void RunRound() {
    job_.RaiseInputs();
    ASSERT_EQ(RunSlots(workers_, slots_).size(), slots_.size());
  }

  SlotTestJob job_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
  std::vector<wire::RunSlot> slots_;
};

// As after a death: another device's router would pick others.
TEST_F(PicksTest, AReplayGoesByWhatTheAttemptBeforeItPicked) {
  job_.FillPicks(1);
  job_.RaisePicks(1);
  RunRound();
  CompareWithSequential(job_, slots_, Picks::kGiven);
}

// What lies there before the words are raised would be refused.
TEST_F(PicksTest, ABackwardSlotWaitsForItsPicks) {
  RunRound();  // its backward slot has all its inputs then
  wire::RunSlot slot = slots_.back();
  ASSERT_EQ(slot.pick_use, wire::PickUse::kRead);
  slot.slot = 77;
  slot.outputs.clear();
  for (wire::SlotMicroBatch& micro_batch : slot.micro_batches) {
    micro_batch.picked.value = 2;
  }
  job_.FillPicks(-101);  // no experts at all
  const uint64_t attempt = workers_[0]->Send(slot);
  workers_[0]->Send(wire::SetTurn{attempt, 5});  // it is looked at meanwhile
  job_.FillPicks(0);
  job_.RaisePicks(2);
  EXPECT_TRUE(
      std::holds_alternative<wire::SlotDone>(workers_[0]->End(attempt)));
}

// The loads of the micro-batch's layers with experts in `slot`, by the picks.
std::vector<ExpertLoad> Counted(const SlotTestJob& job,
                                const wire::RunSlot& slot,
                                const wire::SlotMicroBatch& micro_batch,
                                const std::vector<int32_t>& tokens) {
  const MixtureConfig& mixture = job.config().mixture;
  const auto experts = static_cast<size_t>(mixture.expert_count);
  const auto each = static_cast<size_t>(mixture.experts_per_token);
  std::vector<ExpertLoad> loads(mixture.layers.count() * experts);
  const ExpertPick* pick = job.picks(micro_batch.index);
  size_t first = 0;  // of the layer's loads
  for (int64_t layer = 0; layer < job.config().layer_count; ++layer) {
    if (!job.config().HasExperts(layer)) continue;
    for (size_t i = 0; i < tokens.size() * each; ++i, ++pick) {
      const bool own = layer >= slot.first_layer && layer <= slot.last_layer;
      if (own && tokens[i / each] >= 0) ++loads[first + size_t(*pick)];
    }
    first += experts;
  }
  return loads;
}

TEST_F(PicksTest, LoadsAreOfTheTokensThatAreNoPadding) {
  std::vector<int32_t> tokens(SlotTestJob::kRows * SlotTestJob::kRowTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = i % 3 == 0 ? -1 : 7;
  const MixtureConfig& mixture = job_.config().mixture;
  const uint64_t load_bytes = LoadBytes(
      mixture.layers.count(), static_cast<uint64_t>(mixture.expert_count));
  const wire::BufferRef ids = job_.Allocate(tokens.size() * sizeof(int32_t));
  std::copy(tokens.begin(), tokens.end(),
            job_.arena().At<int32_t>(ids.offset, tokens.size()));
  for (wire::RunSlot& slot : slots_) {
    if (slot.pick_use != wire::PickUse::kWrite) continue;
    for (wire::SlotMicroBatch& micro_batch : slot.micro_batches) {
      micro_batch.tokens_offset = ids.offset;
      micro_batch.loads_offset = job_.Allocate(load_bytes).offset;
    }
  }
  RunRound();
  int compared = 0;
  for (const wire::RunSlot& slot : slots_) {
    for (const wire::SlotMicroBatch& micro_batch : slot.micro_batches) {
      if (micro_batch.loads_offset == 0) continue;
      const uint64_t count = load_bytes / sizeof(ExpertLoad);
      const auto* const loads =
          job_.arena().At<ExpertLoad>(micro_batch.loads_offset, count);
      EXPECT_EQ(std::vector<ExpertLoad>(loads, loads + count),
                Counted(job_, slot, micro_batch, tokens));
      ++compared;
    }
  }
  EXPECT_GT(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(Experts, ModelRoundTest,
                         testing::ValuesIn(ExpertRoundShapes()),
                         [](const testing::TestParamInfo<RoundShape>& info) {
                           return info.param.name;
                         });

INSTANTIATE_TEST_SUITE_P(Shapes, ModelRoundTest,
                         testing::ValuesIn(AllRoundShapes()),
                         [](const testing::TestParamInfo<RoundShape>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace roundhouse::worker
