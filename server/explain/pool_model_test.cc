#include "server/explain/pool_model.h"

#include "gtest/gtest.h"
#include "server/explain/test_pool.h"

namespace roundhouse {
namespace {

double EndOf(const PoolSnapshot& pool, size_t active) {
  return *ForecastOf(ModelOf(pool).pool).running[active].end;
}

TEST(PoolModelTest, StatesSayWhatIsLeft) {
  PoolSnapshot pool = TestPool();
  pool.queue.clear();
  ActiveJob& job = pool.active[0];
  job.length->loading_seconds = 20;
  job.length->ending_seconds = 4;
  EXPECT_DOUBLE_EQ(EndOf(pool, 0), 34);
  job.state = JobState::kLoading;
  job.loaded_seconds = 15;
  EXPECT_DOUBLE_EQ(EndOf(pool, 0), 39);
  job.loaded_seconds = 90;
  EXPECT_DOUBLE_EQ(EndOf(pool, 0), 34);
  for (const JobState state :
       {JobState::kFinalizing, JobState::kPausing, JobState::kCancelling}) {
    job.state = state;
    EXPECT_DOUBLE_EQ(EndOf(pool, 0), 4);
  }
  job.length.reset();
  EXPECT_DOUBLE_EQ(EndOf(pool, 0), 0);
  job.state = JobState::kRunning;
  EXPECT_EQ(ForecastOf(ModelOf(pool).pool).running[0].end, std::nullopt);
}

TEST(PoolModelTest, OneThatWaitsWithItsMemoryHasNoPlaceAndNoEnd) {
  PoolSnapshot pool = TestPool();
  pool.queue.resize(1);
  pool.active[0].waits = true;
  pool.places_taken = 0;
  pool.max_running_jobs = 1;
  const Forecast forecast = ForecastOf(ModelOf(pool).pool);
  EXPECT_EQ(forecast.running[0].end, std::nullopt);
  EXPECT_EQ(forecast.queue[0].start, std::nullopt);
  pool.queue[0].host_bytes = 22;
  EXPECT_EQ(ForecastOf(ModelOf(pool).pool).queue[0].start, 0);
}

TEST(PoolModelTest, WhoMayGiveWay) {
  PoolSnapshot pool = TestPool();
  ActiveJob& job = pool.active[0];
  const WaitingJob& waiting = pool.queue[0];
  EXPECT_FALSE(MayGiveWay(job, waiting));
  job.priority = Priority::kBackfill;
  EXPECT_TRUE(MayGiveWay(job, waiting));
  const auto way = [&pool] { return ModelOf(pool).pool.running[0].gives_way; };
  using GivesWay = ForecastJob::GivesWay;
  EXPECT_EQ(way(), GivesWay::kMay);
  for (const JobState state :
       {JobState::kFinalizing, JobState::kPausing, JobState::kCancelling}) {
    job.state = state;
    EXPECT_FALSE(MayGiveWay(job, waiting));
    EXPECT_EQ(way(), GivesWay::kMayNot);
  }
  // It is saved, and has its ten steps left.
  job.state = JobState::kPausing;
  job.leaves = true;
  EXPECT_EQ(way(), GivesWay::kMayNot) << "somebody paused it";
  EXPECT_EQ(*ForecastOf(ModelOf(pool).pool).running[0].end, 0);
  job.comes_back = true;
  EXPECT_EQ(way(), GivesWay::kDoes);
  pool.queue.clear();
  EXPECT_EQ(*ForecastOf(ModelOf(pool).pool).running[0].end, 30);
  job.waits = true;
  EXPECT_EQ(way(), GivesWay::kMayNot);
}

TEST(PoolModelTest, TheQueueIsTheSameInBothOrders) {
  const PoolSnapshot pool = TestPool();
  const PoolModel model = ModelOf(pool);
  ASSERT_EQ(model.places, (std::vector<size_t>{2, 0, 1}));
  for (size_t place = 0; place < 3; ++place) {
    EXPECT_EQ(model.pool.queue[model.places[place]].owner.user,
              pool.queue[place].owner.user);
  }
}

// bob's is first and waits for ann's; cid's fits beside it.
TEST(PoolModelTest, OneThatMakesTheFirstNoLaterGoesAhead) {
  PoolSnapshot pool = TestPool();
  pool.active[0].length->most_devices = 1;
  pool.queue[1].length =
      JobLength{.steps = 10, .step_device_seconds = 5, .most_devices = 1};
  GoingAhead ahead = WhoGoesAhead(pool, "job-4", std::nullopt);
  EXPECT_EQ(ahead.job, "job-2");
  EXPECT_EQ(ahead.expected, pool.now + absl::Seconds(60));
  // A promise that is over lets nobody ahead.
  ahead = WhoGoesAhead(pool, "job-4", pool.now + absl::Seconds(59));
  EXPECT_EQ(ahead.job, "");
  EXPECT_EQ(ahead.expected, pool.now + absl::Seconds(60));
  EXPECT_EQ(WhoGoesAhead(pool, "job-4", pool.now + absl::Seconds(61)).job,
            "job-2");
}

// bob's waits for ann's; it will not have the memory of cid's backfill job,
// which is saved then, but takes 5 s for that.
TEST(PoolModelTest, ABackfillJobGoesAheadWhereItIsGoneInTime) {
  PoolSnapshot pool = TestPool();
  pool.active[0].length->most_devices = 1;
  pool.queue.pop_back();
  pool.queue[1].priority = Priority::kBackfill;
  pool.queue[1].length =
      JobLength{.steps = 10, .step_device_seconds = 5, .most_devices = 1};
  EXPECT_EQ(WhoGoesAhead(pool, "job-4", std::nullopt).job, "job-2");
  EXPECT_EQ(
      WhoGoesAhead(pool, "job-4", std::nullopt, MayGoAhead::kNoLesserClass).job,
      "");
  // Beside bob's there is no room for it.
  pool.queue[0].host_bytes = 92;
  pool.queue[1].length->steps = 100;
  EXPECT_EQ(WhoGoesAhead(pool, "job-4", std::nullopt).job, "job-2");
  pool.queue[1].length->ending_seconds = 5;
  EXPECT_EQ(WhoGoesAhead(pool, "job-4", std::nullopt).job, "");
}

TEST(PoolModelTest, NobodyGoesAheadWhoMayNotOrDoesNotFit) {
  PoolSnapshot pool = TestPool();
  pool.active[0].length->most_devices = 1;
  for (WaitingJob& job : pool.queue) {
    job.length =
        JobLength{.steps = 1, .step_device_seconds = 1, .most_devices = 1};
  }
  const auto ahead = [&pool] {
    return WhoGoesAhead(pool, "job-4", std::nullopt).job;
  };
  EXPECT_EQ(ahead(), "job-2");
  pool.sharing.running.users["cid"] = 0;
  EXPECT_EQ(ahead(), "job-3");
  pool.queue[2].host_bytes = 23;
  EXPECT_EQ(ahead(), "");
  pool.queue[2].host_bytes.reset();
  EXPECT_EQ(ahead(), "");
  pool.sharing.running.users.clear();
  pool.max_running_jobs = 1;
  EXPECT_EQ(ahead(), "");
  pool.max_running_jobs = 2;
  EXPECT_EQ(ahead(), "job-2");
  EXPECT_EQ(WhoGoesAhead(pool, "job-99", std::nullopt).job, "");
}

}  // namespace
}  // namespace roundhouse
