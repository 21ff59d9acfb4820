#include "scheduler/forecast/pool_forecast.h"

#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/forecast/small_steps.h"
#include "scheduler/share/parts_by_weight.h"

namespace roundhouse {
namespace {

const JobOwner kAnn = {"vision", "ann"};
const JobOwner kBob = {"vision", "bob"};
const JobOwner kCid = {"speech", "cid"};

ForecastJob JobOf(const JobOwner& owner, std::optional<double> seconds,
                  uint64_t bytes = 0) {
  return {.owner = owner, .device_seconds = seconds, .host_bytes = bytes};
}

TEST(SharedRatesTest, WhatOneCannotUseTheOthersGet) {
  const std::vector<double> parts =
      PartsByWeight(12, {{1, 100}, {2, 3}, {1, 100}});
  EXPECT_DOUBLE_EQ(parts[0], 4.5);
  EXPECT_DOUBLE_EQ(parts[1], 3);
  EXPECT_DOUBLE_EQ(parts[2], 4.5);
  EXPECT_EQ(PartsByWeight(5, {{1, 1}, {3, 2}}), (std::vector<double>{1, 2}));
  EXPECT_TRUE(PartsByWeight(5, {}).empty());
}

TEST(SharedRatesTest, ProjectsThenUsersThenJobsAndUrgentOnesFirst) {
  ShareWeights weights;
  weights.projects["speech"] = 2;
  const std::vector<double> rates =
      SharedRates({{kAnn}, {kAnn}, {kBob}, {kCid}}, 12, weights);
  EXPECT_EQ(rates, (std::vector<double>{1, 1, 2, 8}));
  const std::vector<double> urgent = SharedRates(
      {{kAnn}, {kBob, Priority::kUrgent, 3}, {kCid, Priority::kUrgent, 5}}, 12,
      {});
  EXPECT_EQ(urgent, (std::vector<double>{4, 3, 5}));
  EXPECT_EQ(SharedRates({{kAnn}}, 0, {}), std::vector<double>{0});
  // Class backfill gets what is left.
  const std::vector<double> left = SharedRates({{kCid, Priority::kBackfill},
                                                {kAnn, Priority::kNormal, 4},
                                                {kBob, Priority::kBackfill, 1},
                                                {kBob, Priority::kUrgent, 3}},
                                               12, weights);
  EXPECT_EQ(left, (std::vector<double>{4, 4, 1, 3}));
  EXPECT_EQ(SharedRates({{kAnn, Priority::kBackfill}, {kBob}}, 12, {}),
            (std::vector<double>{0, 12}));
}

TEST(PoolForecastTest, JobsEndAsTheyShareAndTheNextStartsThen) {
  const ForecastPool pool = {.devices = 2,
                             .free_bytes = 10,
                             .running = {JobOf(kAnn, 10), JobOf(kBob, 30, 5)},
                             .queue = {JobOf(kCid, 8, 5)}};
  const Forecast forecast = ForecastOf(pool);
  // One device-second a second each; then two of bob's until cid has half.
  EXPECT_DOUBLE_EQ(*forecast.running[0].end, 10);
  EXPECT_DOUBLE_EQ(*forecast.queue[0].start, 10);
  EXPECT_DOUBLE_EQ(*forecast.queue[0].end, 18);
  EXPECT_DOUBLE_EQ(*forecast.running[1].end, 24);
  EXPECT_EQ(forecast.running[0].start, 0);
}

TEST(PoolForecastTest, LoadingAndSavingTakeAPlaceAndNoDevice) {
  ForecastPool pool = {.devices = 1, .running = {JobOf(kAnn, 10)}};
  pool.running[0].loading_seconds = 5;
  pool.running[0].ending_seconds = 3;
  pool.queue = {JobOf(kBob, 1)};
  const Forecast forecast = ForecastOf(pool);
  EXPECT_DOUBLE_EQ(*forecast.running[0].end, 18);
  EXPECT_DOUBLE_EQ(*forecast.queue[0].start, 18);
}

TEST(PoolForecastTest, TheFirstWaitsForItsMemoryAndThoseBehindItWithIt) {
  const ForecastPool pool = {.devices = 1,
                             .free_places = 5,
                             .free_bytes = 3,
                             .running = {JobOf(kAnn, 10, 7)},
                             .queue = {JobOf(kBob, 1, 8), JobOf(kCid, 1, 1)}};
  const Forecast forecast = ForecastOf(pool);
  EXPECT_DOUBLE_EQ(*forecast.queue[0].start, 10);
  EXPECT_DOUBLE_EQ(*forecast.queue[1].start, 10);
  EXPECT_DOUBLE_EQ(*forecast.queue[1].end, 12);
}

TEST(PoolForecastTest, WhoHasAllThatHeMayHaveIsPassedOver) {
  ForecastPool pool = {.devices = 1,
                       .free_places = 5,
                       .free_bytes = 100,
                       .running_limits = {.other_users = 1},
                       .running_use = CountOf({kAnn}),
                       .running = {JobOf(kAnn, 10)},
                       .queue = {JobOf(kAnn, 1, 1), JobOf(kBob, 5, 1)}};
  const Forecast forecast = ForecastOf(pool);
  EXPECT_DOUBLE_EQ(*forecast.queue[0].start, 15);
  EXPECT_DOUBLE_EQ(*forecast.queue[1].start, 0);
  pool.queue[0].start = ForecastJob::Start::kMayNot;
  const Forecast hours = ForecastOf(pool);
  EXPECT_EQ(hours.queue[0].start_unknown, Unknown::kMayNot);
  EXPECT_EQ(hours.queue[0].end_unknown, Unknown::kMayNot);
}

TEST(PoolForecastTest, UrgentThenWhoHadLeastThenTheOldest) {
  ForecastPool pool = {
      .devices = 1,
      .free_bytes = 100,
      .project_use = {{"vision", 100}},
      .user_use = {{{"vision", "ann"}, 60}, {{"vision", "bob"}, 40}},
      .running = {JobOf(kCid, 20)},
      .queue = {JobOf(kAnn, 5, 1), JobOf(kBob, 5, 1), JobOf(kCid, 5, 1),
                JobOf(kBob, 5, 1), JobOf(kAnn, 5, 1)}};
  pool.running[0].priority = Priority::kUrgent;
  pool.queue[4].priority = Priority::kUrgent;
  const auto starts = [&] {
    std::vector<double> all;
    for (const Expected& job : ForecastOf(pool).queue)
      all.push_back(*job.start);
    return all;
  };
  EXPECT_EQ(starts(), (std::vector<double>{40, 30, 25, 35, 20}));
  // The one that is being opened stays the first of its class.
  pool.opening = 3;
  EXPECT_EQ(starts(), (std::vector<double>{40, 35, 30, 25, 20}));
  // What is used on the way counts: cid is behind now.
  pool.opening.reset();
  pool.running[0].device_seconds = 121;
  EXPECT_EQ(starts(), (std::vector<double>{136, 126, 141, 131, 121}));
}

// Ann's backfill job has the only place, and the memory.
ForecastPool PoolThatGivesWay() {
  ForecastPool pool = {.devices = 1,
                       .running = {JobOf(kAnn, 10, 7)},
                       .queue = {JobOf(kBob, 5, 6)}};
  pool.free_bytes = 2;
  ForecastJob& job = pool.running[0];
  job.priority = Priority::kBackfill;
  job.loading_seconds = 1;
  job.ending_seconds = 2;
  job.reloading_seconds = 3;
  pool.queue[0].loading_seconds = 4;
  return pool;
}

TEST(PoolForecastTest, AJobOfALesserClassGivesWayAndComesBack) {
  ForecastPool pool = PoolThatGivesWay();
  Forecast forecast = ForecastOf(pool);
  // Saved at 2, when bob's loads; after that it has all its steps to make.
  EXPECT_DOUBLE_EQ(*forecast.queue[0].start, 2);
  EXPECT_DOUBLE_EQ(*forecast.queue[0].end, 11);
  EXPECT_EQ(forecast.running[0].start, 0);
  EXPECT_DOUBLE_EQ(*forecast.running[0].end, 11 + 3 + 10 + 2);
  // A job of its class waits; so does one that needs more than both have.
  pool.queue[0].priority = Priority::kBackfill;
  EXPECT_DOUBLE_EQ(*ForecastOf(pool).queue[0].start, 13);
  pool.queue[0].priority = Priority::kNormal;
  pool.free_places = 1;
  pool.queue[0].host_bytes = 10;
  forecast = ForecastOf(pool);
  EXPECT_DOUBLE_EQ(*forecast.running[0].end, 13);
  EXPECT_DOUBLE_EQ(*forecast.queue[0].start, 13);
}

TEST(PoolForecastTest, OneThatIsBeingSavedHasNoPlaceAndComesBackFirst) {
  ForecastPool pool = PoolThatGivesWay();
  pool.free_places = 1;
  pool.running[0].gives_way = ForecastJob::GivesWay::kDoes;
  pool.running[0].place = ForecastJob::Place::kNone;
  pool.running[0].priority = Priority::kNormal;
  pool.queue.push_back(JobOf(kCid, 1, 1));
  pool.queue[1].priority = Priority::kUrgent;
  const Forecast forecast = ForecastOf(pool);
  EXPECT_DOUBLE_EQ(*forecast.queue[1].start, 0);
  EXPECT_DOUBLE_EQ(*forecast.queue[1].end, 1);
  // Bob's waits for the memory, and others of its class that ran go first.
  EXPECT_DOUBLE_EQ(*forecast.running[0].end, 2 + 3 + 10 + 2);
  EXPECT_DOUBLE_EQ(*forecast.queue[0].start, 17);
}

TEST(PoolForecastTest, TheLowestClassGivesWayThenWhoHadMost) {
  ForecastPool pool = {
      .devices = 1,
      .project_use = {{"vision", 10}},
      .user_use = {{{"vision", "ann"}, 4}, {{"vision", "bob"}, 6}},
      .running = {JobOf(kAnn, 10, 4), JobOf(kBob, 10, 4), JobOf(kCid, 10, 4),
                  JobOf(kBob, 10, 4)},
      .queue = {JobOf(kCid, 1, 4)}};
  pool.queue[0].priority = Priority::kUrgent;
  for (size_t i = 0; i < pool.running.size(); ++i) {
    pool.running[i].number = static_cast<int64_t>(i);
    pool.running[i].ending_seconds = 1;
    pool.running[i].loading_seconds = 100;  // none has steps when it is taken
    pool.running[i].reloading_seconds = 1000;
  }
  const auto last = [&pool] {
    const Forecast forecast = ForecastOf(pool);
    EXPECT_DOUBLE_EQ(*forecast.queue[0].start, 1);
    size_t last = 0;
    for (size_t i = 0; i < forecast.running.size(); ++i) {
      if (*forecast.running[i].end > *forecast.running[last].end) last = i;
    }
    return last;
  };
  EXPECT_EQ(last(), 3u) << "bob had most, and the younger one goes";
  pool.running[3].gives_way = ForecastJob::GivesWay::kMayNot;
  EXPECT_EQ(last(), 1u);
  pool.running[0].priority = Priority::kBackfill;
  EXPECT_EQ(last(), 0u);
  // One whose memory is enough alone goes before one whose is not.
  pool.running[0].host_bytes = 3;
  pool.free_places = 1;
  EXPECT_EQ(last(), 1u);
}

TEST(PoolForecastTest, WhatIsNotKnownIsSaid) {
  ForecastPool pool = {.devices = 1,
                       .free_places = 1,
                       .free_bytes = 2,
                       .running = {JobOf(kAnn, std::nullopt, 7)},
                       .queue = {JobOf(kBob, 1, 8)}};
  Forecast forecast = ForecastOf(pool);
  EXPECT_EQ(forecast.queue[0].start, std::nullopt);
  EXPECT_EQ(forecast.queue[0].start_unknown, Unknown::kLength);
  EXPECT_EQ(forecast.running[0].end_unknown, Unknown::kLength);
  pool.queue[0].host_bytes.reset();
  EXPECT_EQ(ForecastOf(pool).queue[0].start_unknown, Unknown::kNeed);
  pool.queue[0] = JobOf(kBob, std::nullopt, 1);
  forecast = ForecastOf(pool);
  EXPECT_EQ(forecast.queue[0].start, 0);
  EXPECT_EQ(forecast.queue[0].start_unknown, Unknown::kNothing);
  EXPECT_EQ(forecast.queue[0].end_unknown, Unknown::kLength);
  pool.devices = 0;
  pool.free_places = 0;
  pool.running[0].device_seconds = 5;
  forecast = ForecastOf(pool);
  EXPECT_EQ(forecast.queue[0].start_unknown, Unknown::kNoDevice);
  EXPECT_EQ(forecast.running[0].end_unknown, Unknown::kNoDevice);
}

TEST(PoolForecastTest, AJobThatNeedsMoreThanThereIsFailsAsItStarts) {
  const ForecastPool pool = {.devices = 1,
                             .free_places = 1,
                             .free_bytes = 2,
                             .queue = {JobOf(kBob, 9, 8), JobOf(kBob, 9, 1)}};
  const Forecast forecast = ForecastOf(pool);
  EXPECT_EQ(forecast.queue[0].end, 0);
  EXPECT_EQ(forecast.queue[1].start, 0);
}

ForecastPool RandomPool(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](double least, double most) {
    return least +
           (most - least) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  const JobOwner owners[] = {kAnn, kBob, kCid, {"speech", "dan"}};
  ForecastPool pool;
  int64_t number = 0;
  pool.devices = static_cast<double>(1 + random() % 3);
  if (random() % 2 == 0) pool.weights.projects["speech"] = draw(0.5, 3);
  if (random() % 2 == 0) pool.weights.users["bob"] = draw(0.5, 3);
  const auto job = [&] {
    ForecastJob made = JobOf(owners[random() % 4], draw(0.2, 5), random() % 6);
    // What urgent ones leave is nothing or half a device: at a rate near 0 a
    // small step too little would take long.
    if (random() % 3 == 0) {
      made.most_devices = 0.5 * static_cast<double>(1 + random() % 3);
    }
    const uint64_t drawn = random() % 6;
    if (drawn < 2) {
      made.priority = drawn == 0 ? Priority::kUrgent : Priority::kBackfill;
    }
    made.loading_seconds = draw(0, 1);
    made.ending_seconds = draw(0, 1);
    made.reloading_seconds = draw(0, 1);
    made.number = ++number;
    return made;
  };
  for (uint64_t left = 1 + random() % 3; left > 0; --left) {
    pool.running.push_back(job());
  }
  for (uint64_t left = 1 + random() % 4; left > 0; --left) {
    pool.queue.push_back(job());
  }
  pool.free_places = static_cast<int64_t>(random() % 2);
  pool.free_bytes = 5 + random() % 4;
  for (const JobOwner& owner : owners) {
    const double use = draw(0, 20);
    pool.project_use[owner.project] += use;
    pool.user_use[{owner.project, owner.user}] = use;
  }
  return pool;
}

TEST(PoolForecastTest, ItIsWhatDeviceTimeInSmallPiecesComesTo) {
  constexpr double kLimit = 60;
  constexpr double kNear = 12 * SmallSteps::kStep;
  int compared = 0, gave_way = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const ForecastPool pool = RandomPool(seed);
    SmallSteps small(pool);
    const std::vector<SmallSteps::Times> times = small.Run(kLimit);
    // Which of two goes first may differ where they are that near.
    if (small.near()) continue;
    ++compared;
    gave_way += small.gave_way();
    const Forecast forecast = ForecastOf(pool);
    std::vector<Expected> all = forecast.running;
    all.insert(all.end(), forecast.queue.begin(), forecast.queue.end());
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(all[i].end.has_value()) << "seed " << seed << " job " << i;
      EXPECT_NEAR(*all[i].start, times[i].start, kNear)
          << "seed " << seed << " job " << i;
      EXPECT_NEAR(*all[i].end, times[i].end, kNear)
          << "seed " << seed << " job " << i;
    }
  }
  std::cout << compared << " pools compared, " << gave_way
            << " jobs gave way\n";
  EXPECT_GT(compared, 100);
  EXPECT_GT(gave_way, 50);
}

TEST(PoolForecastTest, AFullQueueIsLookedAt) {
  ForecastPool pool = {.devices = 8, .free_places = 4, .free_bytes = 1000};
  for (size_t i = 0; i < kMostForecast; ++i) {
    pool.queue.push_back(JobOf({absl::StrCat("p", i % 7), absl::StrCat(i % 31)},
                               1 + static_cast<double>(i % 5), i % 300));
  }
  const Forecast forecast = ForecastOf(pool);
  double last = 0;
  for (const Expected& job : forecast.queue) last = std::max(last, *job.end);
  // No device is ever idle before the last four jobs.
  EXPECT_NEAR(last, 767.0 / 8, 10);
}

}  // namespace
}  // namespace roundhouse
