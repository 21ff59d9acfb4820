// RunSample on a device worker, with a fake model: answers, caches, memory,
// training beside it.  The daemon's side is the test's.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/board/job_tables.h"
#include "worker/board/sample_plan.h"
#include "worker/board/slot_plan.h"
#include "worker/sample/fake_generation.h"
#include "worker/slot/fake_stage_run.h"
#include "worker/slot/test_job.h"

namespace roundhouse::worker {
namespace {

using Tokens = std::vector<int32_t>;

// What went through a model: new tokens by pass, and the tokens cached before.
struct PassLog {
  struct Pass {
    int64_t sequences = 0, cached = 0, added = 0;
  };

  FakeGenerationHook Hook() {
    return [this](int64_t layer, const std::vector<SequenceStep>& steps) {
      if (layer != 0) return absl::OkStatus();
      Pass pass;
      for (const SequenceStep& step : steps) {
        ++pass.sequences;
        pass.cached += step.cached_tokens;
        pass.added += step.new_tokens;
      }
      const std::lock_guard<std::mutex> lock(mutex);
      passes.push_back(pass);
      return absl::OkStatus();
    };
  }
  // Passes since the last call.
  std::vector<Pass> Take() {
    const std::lock_guard<std::mutex> lock(mutex);
    return std::exchange(passes, {});
  }

  std::mutex mutex;
  std::vector<Pass> passes;
};

class SampleRunnerTest : public testing::Test {
 protected:
  explicit SampleRunnerTest(bool tied = false)
      : job_(SmallConfig(4, tied),
             {{{0, 1}, {2, 3}}, {{4, 4}, {2, 3}, {0, 1}}, 4, 2}, 5) {
    job_.RaiseVersions();
  }

  std::unique_ptr<TestWorker> Start(uint64_t memory_bytes = 64 << 20,
                                    FakeGenerationHook hook = nullptr,
                                    double link_gbps = 0) {
    TestWorkerOptions options;
    options.device_memory_bytes = memory_bytes;
    options.runner.make_run = FakeStageRuns();
    options.runner.make_generation =
        FakeGenerations(hook != nullptr ? hook : log_.Hook());
    options.runner.link_gbps = link_gbps;
    return std::make_unique<TestWorker>(job_, next_index_++, options);
  }

  wire::RunSample Sample(uint32_t new_tokens, double temperature = 0) {
    wire::RunSample command = job_.MakeSample(
        ++samples_, {{1, 2, 3}, {4, 5, 6, 7, 8, 9, 10}, {11}}, new_tokens);
    command.temperature = temperature;
    command.seed = 99;
    return command;
  }

  static wire::SampleDone Done(TestWorker& worker,
                               const wire::RunSample& command) {
    wire::Body end = worker.End(worker.Send(command));
    if (const auto* failed = std::get_if<wire::Failed>(&end)) {
      ADD_FAILURE() << failed->text;
      return {.counts = std::vector<uint32_t>(command.sequences.size())};
    }
    return std::get<wire::SampleDone>(std::move(end));
  }
  static wire::Failed Failed(TestWorker& worker,
                             const wire::RunSample& command) {
    return std::get<wire::Failed>(worker.End(worker.Send(command)));
  }

  // By sequence.
  static std::vector<Tokens> Split(const wire::SampleDone& done) {
    std::vector<Tokens> tokens;
    auto at = done.tokens.begin();
    for (uint32_t count : done.counts) {
      tokens.emplace_back(at, at + count);
      at += count;
    }
    EXPECT_EQ(at, done.tokens.end());
    return tokens;
  }

  // The command after `command`, which drew `drawn`.
  wire::RunSample Continue(wire::RunSample command,
                           const std::vector<Tokens>& drawn,
                           uint32_t new_tokens) {
    for (size_t s = 0; s < drawn.size(); ++s) {
      wire::BufferRef& tokens = command.sequences[s].tokens;
      const std::string before = job_.Bytes(tokens);
      const uint64_t added = drawn[s].size() * sizeof(int32_t);
      tokens = job_.Allocate(before.size() + added);
      std::byte* const to = job_.arena().Bytes(tokens);
      std::memcpy(to, before.data(), before.size());
      std::memcpy(to + before.size(), drawn[s].data(), added);
    }
    command.new_tokens = new_tokens;
    return command;
  }

  // What commands of these many tokens draw, command i on worker i mod workers.
  std::vector<Tokens> DrawInParts(
      const std::vector<std::unique_ptr<TestWorker>>& workers,
      wire::RunSample command, const std::vector<uint32_t>& parts) {
    std::vector<Tokens> all(command.sequences.size());
    std::vector<Tokens> last(all.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      command = Continue(command, last, parts[i]);
      last = Split(Done(*workers[i % workers.size()], command));
      for (size_t s = 0; s < all.size(); ++s) {
        all[s].insert(all[s].end(), last[s].begin(), last[s].end());
      }
    }
    return all;
  }

  uint64_t LayerBytes(const wire::RunSample& command) const {
    uint64_t bytes = 0;
    for (const wire::SlotUnit& unit : command.units) {
      if (unit.unit != 0 || unit.layer != 0) bytes += unit.weights.bytes;
    }
    return bytes;
  }
  SamplePlan PlanOf(const wire::RunSample& command) {
    const auto tables = *ReadJobTables(job_.arena(), job_.layout_offset());
    return *PlanSample(command, *tables, job_.arena(), {UINT64_MAX});
  }

  SlotTestJob job_;
  PassLog log_;
  uint64_t samples_ = 0;
  int next_index_ = 0;
};

TEST_F(SampleRunnerTest, AnswersASample) {
  auto worker = Start();
  const wire::RunSample command = Sample(5);
  const wire::SampleDone done = Done(*worker, command);
  EXPECT_EQ(done.sample, command.sample);
  EXPECT_EQ(done.counts, (std::vector<uint32_t>{5, 5, 5}));
  EXPECT_EQ(done.tokens.size(), 15u);
  EXPECT_LT(0, done.started_ns);
  EXPECT_LE(done.started_ns, done.ended_ns);
  EXPECT_EQ(done.weight_bytes, LayerBytes(command));
  const auto passes = log_.Take();
  ASSERT_EQ(passes.size(), 5u);
  EXPECT_EQ(passes[0].added, 11);
  EXPECT_EQ(passes[4].added, 3);
  EXPECT_EQ(passes[4].cached, 11 + 3 * 3);
}

TEST_F(SampleRunnerTest, ASequenceDoesNotDependOnItsNeighbours) {
  auto worker = Start();
  const wire::RunSample command = Sample(6, 1.0);
  const auto together = Split(Done(*worker, command));
  for (size_t s = 0; s < together.size(); ++s) {
    wire::RunSample alone = command;
    alone.sample = ++samples_;
    alone.sequences = {command.sequences[s]};
    EXPECT_EQ(Split(Done(*worker, alone))[0], together[s]);
  }
}

TEST_F(SampleRunnerTest, TokensAreTheSameHoweverASampleIsCut) {
  for (double temperature : {0.0, 0.7}) {
    std::vector<std::unique_ptr<TestWorker>> one;
    one.push_back(Start());
    const wire::RunSample command = Sample(12, temperature);
    const auto whole = Split(Done(*one[0], command));
    log_.Take();
    wire::RunSample again = command;
    again.sample = ++samples_;
    EXPECT_EQ(DrawInParts(one, again, {5, 4, 3}), whole);
    // The cache saves what went through before: the prompts once.
    int64_t added = 0;
    for (const auto& pass : log_.Take()) added += pass.added;
    EXPECT_EQ(added, 11 + 3 * 11);
    // Wherever they are computed, and whatever the cache lacks.
    again.sample = ++samples_;
    one.push_back(Start());
    EXPECT_EQ(DrawInParts(one, again, {2, 3, 1, 4, 2}), whole);
    again.sample = ++samples_;
    again.seed = 100;
    EXPECT_EQ(DrawInParts(one, again, {12}) == whole, temperature == 0);
  }
}

TEST_F(SampleRunnerTest, ACacheOfOtherTokensServesAsFarAsTheyAgree) {
  auto worker = Start();
  wire::RunSample command = Sample(4);
  auto drawn = Split(Done(*worker, command));
  log_.Take();
  drawn[1][1] = (drawn[1][1] + 1) % 37;
  const wire::RunSample other = Continue(command, drawn, 2);
  const auto got = Split(Done(*worker, other));
  const auto first = log_.Take()[0];
  // Sequence 1 agrees in its prompt and one token.
  EXPECT_EQ(first.cached, (3 + 3) + (7 + 1) + (1 + 3));
  EXPECT_EQ(first.added, 1 + 3 + 1);
  EXPECT_EQ(Split(Done(*Start(), other)), got);
}

TEST_F(SampleRunnerTest, OtherWeightsMakeTheCacheUseless) {
  auto worker = Start();
  const wire::RunSample command = Sample(2);
  const auto drawn = Split(Done(*worker, command));
  log_.Take();
  wire::Raise(job_.arena().WordAt(command.units[3].version.offset), 2,
              job_.arena().doorbells());
  Done(*worker, Continue(command, drawn, 2));
  EXPECT_EQ(log_.Take()[0].cached, 0);
}

TEST_F(SampleRunnerTest, ReleasingTheJobDropsTheCache) {
  auto worker = Start();
  Done(*worker, Sample(2));
  EXPECT_GT(worker->device().memory().used_bytes, 0u);
  worker->Send(wire::ReleaseJob{SlotTestJob::kJob});
  // Answered after the release was handled.
  EXPECT_NE(Failed(*worker, Sample(2)).text.find("job 9 is not configured"),
            std::string::npos);
  EXPECT_EQ(worker->device().memory().used_bytes, 0u);
}

TEST_F(SampleRunnerTest, AnEndTokenIsIncludedAndEndsItsSequence) {
  auto worker = Start();
  wire::RunSample command = Sample(10);
  const auto free = Split(Done(*worker, command));
  command.sample = ++samples_;
  command.end_tokens = {free[1][3]};
  const auto ended = Split(Done(*worker, command));
  for (size_t s = 0; s < free.size(); ++s) {
    const auto end = std::find(free[s].begin(), free[s].end(), free[1][3]);
    const Tokens expected(free[s].begin(),
                          end == free[s].end() ? end : end + 1);
    EXPECT_EQ(ended[s], expected);
  }
  EXPECT_LE(ended[1].size(), 4u);
  // Nothing follows an end.
  EXPECT_EQ(Done(*worker, Continue(command, ended, 3)).counts[1], 0u);
}

TEST_F(SampleRunnerTest, TheLastPositionEndsASequence) {
  auto worker = Start();
  wire::RunSample command =
      job_.MakeSample(1, {Tokens(60, 1), Tokens(64, 2), Tokens(10, 3)}, 7);
  EXPECT_EQ(Done(*worker, command).counts, (std::vector<uint32_t>{4, 0, 7}));
  command = job_.MakeSample(2, {Tokens(64, 2)}, 7);
  const wire::SampleDone nothing = Done(*worker, command);
  EXPECT_EQ(nothing.counts, std::vector<uint32_t>{0});
  EXPECT_EQ(nothing.weight_bytes, 0u);
}

TEST_F(SampleRunnerTest, ALogitThatIsNotFiniteNamesSequenceAndPosition) {
  const wire::RunSample command = Sample(3);
  const wire::SlotUnit& head = command.units.back();
  *job_.arena().At<float>(head.weights.offset) = std::nanf("");
  auto worker = Start();
  const wire::Failed failed = Failed(*worker, command);
  EXPECT_EQ(failed.id, command.sample);
  EXPECT_EQ(failed.code,
            static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_NE(failed.text.find("sequence 0, position 3: the logit of token 0 is "
                             "nan"),
            std::string::npos)
      << failed.text;
  EXPECT_EQ(worker->device().memory().used_bytes, 0u);
}

TEST_F(SampleRunnerTest, UnpublishedWeightsAreRefused) {
  wire::RunSample command = Sample(3);
  command.units[2].version.value = 2;
  auto worker = Start();
  EXPECT_NE(Failed(*worker, command)
                .text.find("units[2], unit 2, is at "
                           "version 1, not yet at 2"),
            std::string::npos);
}

TEST_F(SampleRunnerTest, ABadCommandIsRefusedByName) {
  wire::RunSample command = Sample(3);
  command.temperature = -1;
  auto worker = Start();
  const wire::Failed failed = Failed(*worker, command);
  EXPECT_EQ(failed.code,
            static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(failed.text, "sample 1: temperature is -1");
}

TEST_F(SampleRunnerTest, AFailureLeavesNothingBehind) {
  std::atomic<bool> fail{false};
  auto worker = Start(
      64 << 20, [&](int64_t layer, const std::vector<SequenceStep>& steps) {
        if (fail && layer == 2) return absl::InternalError("layer 2 broke");
        return log_.Hook()(layer, steps);
      });
  wire::RunSample command = Sample(3);
  const auto drawn = Split(Done(*worker, command));
  fail = true;
  command = Continue(command, drawn, 4);
  EXPECT_EQ(Failed(*worker, command).text, "layer 2 broke");
  EXPECT_EQ(worker->device().memory().used_bytes, 0u);
  fail = false;
  EXPECT_EQ(Split(Done(*worker, command)), Split(Done(*Start(), command)));
}

// --- memory ---

TEST_F(SampleRunnerTest, WithLittleMemoryWeightsAreStreamedInEveryPass) {
  const wire::RunSample command = Sample(4);
  auto ample = Start();
  const wire::SampleDone expected = Done(*ample, command);
  const SamplePlan plan = PlanOf(command);
  ASSERT_LT(plan.streamed_bytes(), plan.resident_bytes());
  auto worker = Start(plan.streamed_bytes());
  const wire::SampleDone done = Done(*worker, command);
  EXPECT_EQ(done.tokens, expected.tokens);
  EXPECT_EQ(expected.weight_bytes, LayerBytes(command));
  EXPECT_EQ(done.weight_bytes, 4 * LayerBytes(command));
  EXPECT_LE(worker->device().memory().peak_bytes, plan.streamed_bytes());
}

TEST_F(SampleRunnerTest, ItGrowsItsCacheInTheLeastMemory) {
  std::vector<std::unique_ptr<TestWorker>> workers;
  wire::RunSample command = Sample(12, 1.0);
  workers.push_back(Start());
  const auto expected = Split(Done(*workers[0], command));
  // What the last command below would stream, were there no cache.
  std::vector<Tokens> before = expected;
  for (Tokens& drawn : before) drawn.resize(8);
  const uint64_t least = PlanOf(Continue(command, before, 4)).streamed_bytes();
  workers[0] = Start(least);
  log_.Take();
  EXPECT_EQ(DrawInParts(workers, command, {4, 4, 4}), expected);
  int64_t added = 0;
  for (const auto& pass : log_.Take()) added += pass.added;
  EXPECT_EQ(added, 11 + 3 * 11);
  EXPECT_LE(workers[0]->device().memory().peak_bytes, least);
}

TEST_F(SampleRunnerTest, ASampleThatDoesNotFitFailsNamingBytes) {
  const wire::RunSample command = Sample(4);
  const uint64_t need = PlanOf(command).least_bytes();
  const wire::Failed failed = Failed(*Start(need - 1), command);
  EXPECT_EQ(failed.code,
            static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  EXPECT_NE(failed.text.find(std::to_string(need)), std::string::npos);
}

// More prompts than one pass takes.
TEST_F(SampleRunnerTest, ManyPromptsGoInSeveralPasses) {
  const std::vector<Tokens> prompts(100, Tokens(40, 1));
  const wire::RunSample command = job_.MakeSample(1, prompts, 3);
  auto worker = Start();
  const auto drawn = Split(Done(*worker, command));
  EXPECT_TRUE(std::all_of(drawn.begin(), drawn.end(),
                          [&](const Tokens& one) { return one == drawn[0]; }));
  const auto passes = log_.Take();
  ASSERT_EQ(passes.size(), 4u);  // two of prompts
  EXPECT_EQ(passes[0].sequences, 51);
  EXPECT_EQ(passes[1].sequences, 49);
  EXPECT_EQ(passes[2].sequences, 100);
  EXPECT_EQ(passes[2].cached, 4000);
}

TEST_F(SampleRunnerTest, StopEndsASampleOnItsWay) {
  auto worker = Start(64 << 20, nullptr, /*link_gbps=*/0.002);
  worker->Send(Sample(200));
  worker->Send(Sample(200));
  worker.reset();  // checks that all memory was given back
}

// --- beside training ---

class SampleBesideTrainingTest : public SampleRunnerTest {
 protected:
  SampleBesideTrainingTest() { job_.RaiseInputs(); }

  // A command of the sample's beside each slot of a round.
  void Run(uint64_t memory_bytes) {
    const auto expected = Split(Done(*Start(), command_));
    auto worker = Start(memory_bytes);
    std::vector<Tokens> drawn(3), last(3);
    for (const wire::RunSlot& slot : slots_) {
      command_ = Continue(command_, last, 2);
      worker->Send(slot);
      worker->Send(command_);
      last = AwaitBoth(*worker);
      for (size_t s = 0; s < 3; ++s) {
        drawn[s].insert(drawn[s].end(), last[s].begin(), last[s].end());
      }
    }
    EXPECT_EQ(drawn, expected);
    job_.CheckRound(slots_, done_, reference_);
  }

  // What the sample's command drew.
  std::vector<Tokens> AwaitBoth(TestWorker& worker) {
    std::vector<Tokens> drawn;
    for (int ends = 0; ends < 2;) {
      const wire::Message message = worker.Next();
      if (const auto* failed = std::get_if<wire::Failed>(&message.body)) {
        ADD_FAILURE() << failed->text;
        ++ends;
      } else if (const auto* slot =
                     std::get_if<wire::SlotDone>(&message.body)) {
        done_[slot->slot] = *slot;
        ++ends;
      } else if (const auto* sample =
                     std::get_if<wire::SampleDone>(&message.body)) {
        drawn = Split(*sample);
        ++ends;
      }
    }
    return drawn;
  }

  std::vector<wire::RunSlot> slots_ = job_.MakeRound(1);
  SlotTestJob::Reference reference_ = job_.ComputeReference(FakeStageRuns());
  wire::RunSample command_ = Sample(10, 1.0);
  std::map<uint64_t, wire::SlotDone> done_;
};

TEST_F(SampleBesideTrainingTest, WithMemoryForBoth) { Run(64 << 20); }

TEST_F(SampleBesideTrainingTest, WithMemoryForOneAtATime) {
  uint64_t need = PlanOf(command_).least_bytes();
  const auto tables = *ReadJobTables(job_.arena(), job_.layout_offset());
  for (const wire::RunSlot& slot : slots_) {
    const auto plan =
        PlanSlot(slot, *tables, job_.arena().size_bytes(), {UINT64_MAX});
    need = std::max(need, plan->device_bytes());
  }
  Run(need);
}

class TiedSampleRunnerTest : public SampleRunnerTest {
 protected:
  TiedSampleRunnerTest() : SampleRunnerTest(true) {}
};

TEST_F(TiedSampleRunnerTest, TheEmbeddingIsUploadedForTheHeadOnly) {
  const wire::RunSample command = Sample(3);
  const wire::SampleDone done = Done(*Start(), command);
  EXPECT_EQ(done.weight_bytes, LayerBytes(command));
}

}  // namespace
}  // namespace roundhouse::worker
