#include "worker/model/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/convert.h"
#include "base/reduction.h"
#include "gtest/gtest.h"
#include "worker/model/aligned.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {
namespace {

struct State {
  explicit State(int64_t count)
      : master(static_cast<size_t>(count)),
        exp_avg(static_cast<size_t>(count)),
        exp_avg_sq(static_cast<size_t>(count)),
        gradient(static_cast<size_t>(count)) {
    for (size_t i = 0; i < master.size(); ++i) {
      const float x = static_cast<float>(i);
      master[i] = std::sin(x);
      exp_avg[i] = 1e-2f * std::cos(3 * x);
      exp_avg_sq[i] = 1e-4f * (1 + std::sin(5 * x));
      gradient[i] = 0.1f * std::sin(7 * x + 1);
    }
  }

  absl::Status Update(const AdamWStep& step, int64_t begin, int64_t count) {
    return AdamWUpdate(step, {.gradient = gradient.data() + begin,
                              .count = count,
                              .master = master.data() + begin,
                              .exp_avg = exp_avg.data() + begin,
                              .exp_avg_sq = exp_avg_sq.data() + begin,
                              .weight_decay = true});
  }

  AlignedVector<float> master, exp_avg, exp_avg_sq, gradient;
};

AdamWStep StepNumber(int64_t number) {
  return {
      .options = {.weight_decay = 0.1}, .learning_rate = 1e-2, .step = number};
}

// Chunks are journalled and updated one by one; a parameter in one call has
// the same bits, with any number of threads.
TEST(AdamWTest, ChunksEqualOneCall) {
  for (int threads : {1, 2, 3}) {
    for (int64_t count : {1, 7, 40, 32768, 32775, 100003}) {
      SetComputeThreads(threads);
      State whole(count);
      ASSERT_TRUE(whole.Update(StepNumber(3), 0, count).ok());
      SetComputeThreads(1);
      State chunked(count);
      for (int64_t begin = 0; begin < count; begin += kReduceChunkElements) {
        ASSERT_TRUE(chunked
                        .Update(StepNumber(3), begin,
                                std::min(kReduceChunkElements, count - begin))
                        .ok());
      }
      EXPECT_EQ(whole.master, chunked.master) << count << " " << threads;
      EXPECT_EQ(whole.exp_avg, chunked.exp_avg);
      EXPECT_EQ(whole.exp_avg_sq, chunked.exp_avg_sq);
    }
  }
}

TEST(AdamWTest, FollowsLoshchilovAndHutter) {
  State state(100);
  const State before = state;
  const AdamWStep step = StepNumber(4);
  ASSERT_TRUE(state.Update(step, 0, 100).ok());
  for (size_t i = 0; i < 100; ++i) {
    const double g = before.gradient[i];
    const double m = 0.9 * before.exp_avg[i] + 0.1 * g;
    const double v = 0.999 * before.exp_avg_sq[i] + 0.001 * g * g;
    const double m_hat = m / (1 - std::pow(0.9, 4));
    const double v_hat = v / (1 - std::pow(0.999, 4));
    const double expected = before.master[i] * (1 - 1e-2 * 0.1) -
                            1e-2 * m_hat / (std::sqrt(v_hat) + 1e-8);
    EXPECT_NEAR(state.master[i], expected, 1e-6) << i;
    EXPECT_NEAR(state.exp_avg[i], m, 1e-8);
    EXPECT_NEAR(state.exp_avg_sq[i], v, 1e-9);
  }
}

TEST(AdamWTest, DecaysOnlyWhereTold) {
  float master = 2.0f, exp_avg = 0, exp_avg_sq = 0;
  const float gradient = 0;
  AdamWChunk chunk = {.gradient = &gradient,
                      .count = 1,
                      .master = &master,
                      .exp_avg = &exp_avg,
                      .exp_avg_sq = &exp_avg_sq};
  ASSERT_TRUE(AdamWUpdate(StepNumber(1), chunk).ok());
  EXPECT_EQ(master, 2.0f);
  chunk.weight_decay = true;
  ASSERT_TRUE(AdamWUpdate(StepNumber(1), chunk).ok());
  EXPECT_NEAR(master, 2.0f * (1 - 1e-3f), 1e-6f);
}

TEST(CastMasterTest, RoundsToNearestEven) {
  State state(1000);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<std::byte> expected(1000 * DTypeBytes(dtype));
    FromF32(dtype, state.master.data(), expected.data(), 1000);
    AlignedVector<std::byte> cast(expected.size());
    ASSERT_TRUE(CastMaster(state.master.data(), 1000, dtype, cast.data()).ok());
    EXPECT_EQ(std::memcmp(cast.data(), expected.data(), cast.size()), 0)
        << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace roundhouse::worker
