#include "scheduler/forecast/pool_forecast.h"

#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
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

// The same with device time in small pieces, each to whoever of those that go
// had least for its weight since the last of them came or went.
class SmallSteps {
 public:
  explicit SmallSteps(const ForecastPool& pool) : pool_(pool) {
    for (const ForecastJob& job : pool.running) jobs_.push_back({job, 0});
    for (const ForecastJob& job : pool.queue) jobs_.push_back({job, -1});
    bytes_ = static_cast<double>(pool.free_bytes);
    places_ = pool.free_places;
    project_use_ = pool.project_use;
    user_use_ = pool.user_use;
  }

  static constexpr double kStep = 0.01;

  // Starts and ends; -1: none of them within `limit` seconds.
  struct Times {
    double start = -1;
    double end = -1;
  };
  std::vector<Times> Run(double limit) {
    for (; now_ < limit; now_ += kStep) {
      StartThose();
      Serve();
    }
    std::vector<Times> times;
    for (const Job& job : jobs_) times.push_back({job.start, job.end});
    return times;
  }
  // How near two jobs ever were where it was decided which goes first.
  double nearest() const { return nearest_; }

 private:
  struct Job {
    ForecastJob job;
    double start;
    double end = -1;
    double served = 0;
    double lived = 0;     // since its start
    double stepped = -1;  // when its last step was done, since its start
    double span = 0;      // served since the others are the same

    bool runs() const { return start >= 0 && end < 0; }
    bool steps() const {
      return runs() && stepped < 0 && lived >= job.loading_seconds;
    }
  };

  double ProjectTurn(const ForecastJob& job) {
    return project_use_[job.owner.project] /
           pool_.weights.OfProject(job.owner.project);
  }
  double UserTurn(const ForecastJob& job) {
    return user_use_[{job.owner.project, job.owner.user}] /
           pool_.weights.OfUser(job.owner.user);
  }

  bool Before(const Job& a, const Job& b) {
    if (a.job.priority != b.job.priority) {
      return a.job.priority > b.job.priority;
    }
    for (const double gap : {ProjectTurn(a.job) - ProjectTurn(b.job),
                             UserTurn(a.job) - UserTurn(b.job)}) {
      if (gap == 0) continue;
      nearest_ = std::min(nearest_, std::abs(gap));
      return gap < 0;
    }
    return false;
  }

  void StartThose() {
    while (places_ > 0) {
      Job* first = nullptr;
      for (Job& job : jobs_) {
        if (job.start >= 0) continue;
        if (first == nullptr || Before(job, *first)) first = &job;
      }
      if (first == nullptr) return;
      const auto bytes = static_cast<double>(*first->job.host_bytes);
      if (bytes > bytes_) return;
      first->start = now_;
      bytes_ -= bytes;
      --places_;
    }
  }

  void BeginSpan() {
    std::vector<bool> step;
    for (const Job& job : jobs_) step.push_back(job.steps());
    if (step == stepping_) return;
    stepping_ = step;
    span_ = 0;
    for (Job& job : jobs_) job.span = 0;
  }

  // What those of a kind were served in the span, over their weight.
  double SpanTurn(const Job& like, int level) const {
    double sum = 0;
    for (const Job& job : jobs_) {
      if (job.job.priority != like.job.priority) continue;
      const bool project = job.job.owner.project == like.job.owner.project;
      const bool user = project && job.job.owner.user == like.job.owner.user;
      if (level == 0 ? project : level == 1 ? user : &job == &like) {
        sum += job.span;
      }
    }
    return level == 0   ? sum / pool_.weights.OfProject(like.job.owner.project)
           : level == 1 ? sum / pool_.weights.OfUser(like.job.owner.user)
                        : sum;
  }

  Job* NextServed(double piece) {
    Job* next = nullptr;
    for (Job& job : jobs_) {
      if (!job.steps()) continue;
      if (job.span + piece / 2 > job.job.most_devices * span_) continue;
      if (next == nullptr || GoesFirst(job, *next)) next = &job;
    }
    return next;
  }
  bool GoesFirst(const Job& a, const Job& b) const {
    if (a.job.priority != b.job.priority) {
      return a.job.priority > b.job.priority;
    }
    for (int level = 0; level < 3; ++level) {
      const double turn = SpanTurn(a, level), other = SpanTurn(b, level);
      if (std::abs(turn - other) > 1e-12) return turn < other;
    }
    return false;
  }

  void Serve() {
    constexpr int kPieces = 60;
    const double piece = pool_.devices * kStep / kPieces;
    BeginSpan();
    span_ += kStep;
    for (int i = 0; i < kPieces; ++i) {
      Job* const job = NextServed(piece);
      if (job == nullptr) break;
      job->span += piece;
      job->served += piece;
      project_use_[job->job.owner.project] += piece;
      user_use_[{job->job.owner.project, job->job.owner.user}] += piece;
    }
    for (Job& job : jobs_) {
      if (!job.runs()) continue;
      job.lived += kStep;
      if (job.stepped < 0 && job.lived >= job.job.loading_seconds &&
          job.served >= *job.job.device_seconds) {
        job.stepped = job.lived;
      }
      if (job.stepped < 0 || job.lived - job.stepped < job.job.ending_seconds) {
        continue;
      }
      job.end = now_ + kStep;
      bytes_ += static_cast<double>(*job.job.host_bytes);
      ++places_;
    }
  }

  const ForecastPool& pool_;
  std::vector<Job> jobs_;
  std::vector<bool> stepping_;
  double span_ = 0;  // how long they are the same
  double now_ = 0;
  double bytes_ = 0;
  int64_t places_ = 0;
  double nearest_ = std::numeric_limits<double>::infinity();
  std::map<std::string, double> project_use_;
  std::map<std::pair<std::string, std::string>, double> user_use_;
};

ForecastPool RandomPool(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](double least, double most) {
    return least +
           (most - least) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  const JobOwner owners[] = {kAnn, kBob, kCid, {"speech", "dan"}};
  ForecastPool pool;
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
    if (random() % 4 == 0) made.priority = Priority::kUrgent;
    made.loading_seconds = draw(0, 1);
    made.ending_seconds = draw(0, 1);
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
  int compared = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const ForecastPool pool = RandomPool(seed);
    SmallSteps small(pool);
    const std::vector<SmallSteps::Times> times = small.Run(kLimit);
    // Which of two goes first may differ where they are that near.
    if (small.nearest() < 0.1) continue;
    ++compared;
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
  std::cout << compared << " pools compared\n";
  EXPECT_GT(compared, 100);
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
