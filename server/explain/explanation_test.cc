#include "server/explain/explanation.h"

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/explain/test_pool.h"

namespace roundhouse {
namespace {

const ExplanationAsker kAdmin = {[](const std::string&) { return true; }};
const ExplanationAsker kOfSpeech = {
    [](const std::string& project) { return project == "speech"; }};

std::string NameOfJob(const std::string& project, const std::string& id) {
  return "projects/" + project + "/fineTuningJobs/" + id;
}

v1::JobExplanation Explain(const PoolSnapshot& pool,
                           const ExplanationAsker& asker = kAdmin) {
  return ExplanationOf(pool, std::nullopt, asker);
}

using Kinds = std::vector<v1::ObstacleKind>;
template <typename Obstacles>
Kinds KindsOf(const Obstacles& obstacles) {
  Kinds kinds;
  for (const v1::Obstacle& obstacle : obstacles) {
    kinds.push_back(obstacle.kind());
  }
  return kinds;
}

TEST(ExplanationTest, TheFirstWaitsForItsMemoryAndItIsSaidWhoHoldsIt) {
  PoolSnapshot pool = TestPool();
  AskAbout("job-4", kBob, JobState::kQueued, pool);
  const v1::JobExplanation why =
      ExplanationOf(pool, pool.now - absl::Seconds(60), kAdmin);
  ASSERT_EQ(KindsOf(why.obstacles()), Kinds{v1::OBSTACLE_HOST_MEMORY});
  const v1::MissingMemory& memory = why.obstacles(0).memory();
  EXPECT_EQ(memory.needed_bytes(), 40);
  EXPECT_EQ(memory.available_bytes(), 22);
  EXPECT_EQ(memory.free_bytes(), 25);
  EXPECT_EQ(memory.limit_bytes(), 100);
  ASSERT_EQ(memory.holders_size(), 1);
  EXPECT_EQ(memory.holders(0).job(), NameOfJob("vision", "job-1"));
  EXPECT_EQ(memory.holders(0).bytes(), 70);
  EXPECT_EQ(memory.other_bytes(), 5);
  EXPECT_EQ(why.queue().place(), 1);
  EXPECT_EQ(why.queue().size(), 3);
  EXPECT_EQ(why.queue().before_size(), 0);
  EXPECT_EQ(why.since().seconds(), 1'699'999'940);
  // ann's job ends in 30 s; what bob's takes nobody knows.
  EXPECT_EQ(why.expected().start().seconds(), 1'700'000'030);
  EXPECT_EQ(why.expected().end_unknown(), v1::UNKNOWN_TIME_LENGTH);
  EXPECT_EQ(why.devices().in_use(), 2);
}

TEST(ExplanationTest, BasesThatAreThereAreNotNeededAgain) {
  PoolSnapshot pool = TestPool();
  pool.queue[0].shared_bytes = 18;
  AskAbout("job-4", kBob, JobState::kQueued, pool);
  EXPECT_EQ(KindsOf(Explain(pool).obstacles()),
            Kinds{v1::OBSTACLE_BEING_OPENED});
  pool.queue[0].shared_bytes = 17;
  EXPECT_EQ(Explain(pool).obstacles(0).memory().needed_bytes(), 23);
}

// ann's is of class backfill: it is saved for bob's, and has 70.
TEST(ExplanationTest, JobsOfALowerClassGiveWay) {
  PoolSnapshot pool = TestPool();
  pool.active[0].priority = Priority::kBackfill;
  pool.active[0].length->ending_seconds = 4;
  pool.max_running_jobs = 1;
  AskAbout("job-4", kBob, JobState::kQueued, pool);
  v1::JobExplanation why = Explain(pool);
  ASSERT_EQ(KindsOf(why.obstacles()),
            (Kinds{v1::OBSTACLE_MAX_RUNNING_JOBS, v1::OBSTACLE_HOST_MEMORY}));
  for (const v1::Obstacle& obstacle : why.obstacles()) {
    EXPECT_TRUE(obstacle.jobs_give_way());
  }
  EXPECT_TRUE(why.obstacles(1).memory().holders(0).lower_class());
  EXPECT_FALSE(why.obstacles(1).memory().holders(0).leaves());
  EXPECT_EQ(why.expected().start().seconds(), 1'700'000'004);

  // It is being saved: no place has to be given any more.
  pool.active[0].leaves = true;
  pool.active[0].comes_back = true;
  pool.active[0].state = JobState::kPausing;
  pool.places_taken = 0;
  pool.used.running = {};
  why = Explain(pool);
  ASSERT_EQ(KindsOf(why.obstacles()), Kinds{v1::OBSTACLE_HOST_MEMORY});
  EXPECT_TRUE(why.obstacles(0).jobs_give_way());
  EXPECT_TRUE(why.obstacles(0).memory().holders(0).leaves());
  EXPECT_EQ(why.expected().start().seconds(), 1'700'000'004);

  // What all of them have is not enough.
  pool.queue[0].host_bytes = 93;
  EXPECT_FALSE(Explain(pool).obstacles(0).jobs_give_way());
  pool = TestPool();
  AskAbout("job-4", kBob, JobState::kQueued, pool);
  why = Explain(pool);
  EXPECT_FALSE(why.obstacles(0).jobs_give_way()) << "it is of the same class";
  EXPECT_FALSE(why.obstacles(0).memory().holders(0).lower_class());
}

TEST(ExplanationTest, WhoGoesBeforeAndWhy) {
  PoolSnapshot pool = TestPool();
  pool.queue[0].priority = Priority::kUrgent;
  AskAbout("job-3", kAnn, JobState::kQueued, pool);
  v1::JobExplanation why = Explain(pool);
  EXPECT_EQ(KindsOf(why.obstacles()), Kinds{v1::OBSTACLE_JOBS_BEFORE});
  ASSERT_EQ(why.queue().before_size(), 2);
  EXPECT_EQ(why.queue().before(0).job(), NameOfJob("vision", "job-4"));
  EXPECT_EQ(why.queue().before(0).reason(), v1::ORDER_REASON_CLASS);
  EXPECT_EQ(why.queue().before(0).job_class(), "urgent");
  EXPECT_EQ(why.queue().before(1).job(), NameOfJob("speech", "job-2"));
  // Both projects had as much; a user is one of a project.
  EXPECT_EQ(why.queue().before(1).reason(), v1::ORDER_REASON_USER_HAD_LESS);
  EXPECT_EQ(why.queue().place(), 3);
  EXPECT_EQ(why.queue().first(), NameOfJob("vision", "job-4"));
  ASSERT_EQ(KindsOf(why.queue().first_obstacles()),
            Kinds{v1::OBSTACLE_HOST_MEMORY});
  EXPECT_EQ(why.queue().first_obstacles(0).memory().needed_bytes(), 40);

  pool.project_use["speech"] = 3600;
  pool.sharing.weights.projects["speech"] = 2;
  pool.opening = "job-4";
  pool.queue[0].priority = Priority::kNormal;
  why = Explain(pool);
  EXPECT_EQ(why.queue().before(0).reason(), v1::ORDER_REASON_BEING_OPENED);
  const v1::JobBefore& cid = why.queue().before(1);
  EXPECT_EQ(cid.reason(), v1::ORDER_REASON_PROJECT_HAD_LESS);
  EXPECT_DOUBLE_EQ(cid.its_hours(), 0.5);
  EXPECT_DOUBLE_EQ(cid.job_hours(), 2);

  pool.queue[1].owner = kAnn;
  why = Explain(pool);
  EXPECT_EQ(why.queue().before(1).reason(), v1::ORDER_REASON_OLDER);
  pool.queue[1].ran = true;
  why = Explain(pool);
  EXPECT_EQ(why.queue().before(1).reason(), v1::ORDER_REASON_RAN);
  pool.queue[2].priority = Priority::kBackfill;
  why = Explain(pool);
  EXPECT_EQ(why.queue().before(1).reason(), v1::ORDER_REASON_CLASS);
  EXPECT_EQ(why.queue().before(1).job_class(), "normal");
}

TEST(ExplanationTest, JobsThatAreNotToBeSeenHaveNoName) {
  PoolSnapshot pool = TestPool();
  pool.active[0].length->measured_in = {"job-9", "vision"};
  AskAbout("job-2", kCid, JobState::kQueued, pool);
  pool.queue[1].length = JobLength{
      .steps = 1, .step_device_seconds = 2, .measured_in = {"job-9", "vision"}};
  const v1::JobExplanation why = Explain(pool, kOfSpeech);
  EXPECT_EQ(why.queue().before_size(), 1);
  EXPECT_EQ(why.queue().before(0).job(), "");
  EXPECT_EQ(why.queue().first(), "");
  const v1::MissingMemory& memory = why.queue().first_obstacles(0).memory();
  EXPECT_EQ(memory.holders(0).job(), "");
  EXPECT_EQ(memory.holders(0).bytes(), 70);
  EXPECT_EQ(why.expected().measured_in(), "");
  EXPECT_FALSE(why.expected().own_steps());
  EXPECT_EQ(why.expected().step_device_seconds(), 2);
  // Whatever it says, it names nothing of the other project.
  EXPECT_EQ(why.DebugString().find("vision"), std::string::npos);
  EXPECT_EQ(why.DebugString().find("job-"), std::string::npos);
  EXPECT_EQ(Explain(pool).expected().measured_in(),
            NameOfJob("vision", "job-9"));
}

TEST(ExplanationTest, LimitsHaveTheirSubjectsAndPassJobsOver) {
  PoolSnapshot pool = TestPool();
  pool.sharing.running = {.users = {{"ann", 1}}};
  pool.sharing.gpu_hours = {.projects = {{"vision", 5}}};
  pool.sharing.host_bytes = {.other_users = 9, .all = 200};
  pool.used.gpu_hours = {.projects = {{"vision", 5}}, .all = 5};
  AskAbout("job-3", kAnn, JobState::kQueued, pool);
  v1::JobExplanation why = Explain(pool);
  // job-4 and job-2 before it are passed over, too.
  ASSERT_EQ(
      KindsOf(why.obstacles()),
      (Kinds{v1::OBSTACLE_LIMIT, v1::OBSTACLE_LIMIT, v1::OBSTACLE_LIMIT}));
  EXPECT_EQ(why.queue().passed_over(), 2);
  EXPECT_TRUE(why.queue().before(0).passed_over());
  const v1::ReachedLimit& running = why.obstacles(0).limit();
  EXPECT_EQ(running.limit(), "running_jobs");
  EXPECT_EQ(running.subject(), "user:ann");
  EXPECT_EQ(running.value(), 1);
  EXPECT_EQ(running.used(), 1);
  EXPECT_EQ(why.obstacles(1).limit().limit(), "gpu_hours");
  EXPECT_EQ(why.obstacles(1).limit().subject(), "project:vision");
  const v1::ReachedLimit& bytes = why.obstacles(2).limit();
  EXPECT_EQ(bytes.limit(), "host_bytes");
  EXPECT_EQ(bytes.subject(), "everybody");
  EXPECT_EQ(bytes.used(), 70);
  EXPECT_EQ(bytes.more(), 20);
  EXPECT_EQ(why.expected().start_unknown(), v1::UNKNOWN_TIME_LIMIT);

  pool.sharing.running = {.all = 1};
  AskAbout("job-2", kCid, JobState::kQueued, pool);
  why = Explain(pool);
  EXPECT_EQ(why.obstacles(0).limit().subject(), "server");
}

TEST(ExplanationTest, NothingStartsOnAFullDiskOrWhileTheDaemonEnds) {
  PoolSnapshot pool = TestPool();
  pool.reserve_held = false;
  pool.stopping = true;
  pool.max_running_jobs = 1;
  AskAbout("job-4", kBob, JobState::kQueued, pool);
  const v1::JobExplanation why = Explain(pool);
  EXPECT_EQ(KindsOf(why.obstacles()),
            (Kinds{v1::OBSTACLE_DAEMON_STOPS, v1::OBSTACLE_DISK_RESERVE,
                   v1::OBSTACLE_MAX_RUNNING_JOBS, v1::OBSTACLE_HOST_MEMORY}));
  EXPECT_EQ(why.obstacles(2).limit().value(), 1);
  EXPECT_EQ(why.expected().start_unknown(), v1::UNKNOWN_TIME_NOTHING_STARTS);
}

TEST(ExplanationTest, OneFarBehindHasAPlaceAndNoTime) {
  PoolSnapshot pool = TestPool();
  while (pool.queue.size() < kMostForecast) {
    pool.queue.push_back(pool.queue[2]);
    pool.queue.back().id = "job-8";
    pool.queue.back().age = pool.queue.size();
  }
  pool.queue.push_back({.id = "job-9", .owner = kCid, .age = 900});
  AskAbout("job-9", kCid, JobState::kQueued, pool);
  pool.asked_place = 777;
  pool.queue_size = 1000;
  const v1::JobExplanation why = Explain(pool);
  EXPECT_EQ(why.queue().place(), 777);
  EXPECT_EQ(why.queue().size(), 1000);
  EXPECT_EQ(why.queue().before_size(), static_cast<int>(kMostExplained));
  EXPECT_EQ(why.expected().start_unknown(), v1::UNKNOWN_TIME_TOO_FAR);
}

TEST(ExplanationTest, WhatARunningJobHadAgainstItsFairShare) {
  PoolSnapshot pool = TestPool();
  pool.active.push_back({.id = "job-5",
                         .owner = kCid,
                         .priority = Priority::kUrgent,
                         .state = JobState::kRunning,
                         .has_steps = true});
  pool.active.push_back({.id = "job-6",
                         .owner = kBob,
                         .state = JobState::kRunning,
                         .has_steps = true});
  pool.active[1].priority = Priority::kNormal;
  pool.sharing.weights.projects["speech"] = 3;
  pool.active[0].served = {.window_seconds = 100,
                           .device_seconds = 40,
                           .all_device_seconds = 160,
                           .host_seconds = 7};
  pool.active[0].step_seconds = 12;
  pool.times.bubble_ns = 5'000'000'000;
  pool.times.bubble_causes_ns = {1'000'000'000, 0, 4'000'000'000};
  AskAbout("job-1", kAnn, JobState::kRunning, pool);
  v1::JobExplanation why = Explain(pool);
  EXPECT_TRUE(why.obstacles().empty());
  EXPECT_FALSE(why.has_queue());
  const v1::DeviceService& service = why.service();
  EXPECT_DOUBLE_EQ(service.share(), 0.25);
  EXPECT_DOUBLE_EQ(service.fair_share(), 0.125);
  EXPECT_EQ(service.jobs(), 3);
  EXPECT_EQ(service.urgent_jobs(), 0);
  EXPECT_EQ(service.backfill_jobs(), 0);
  EXPECT_EQ(service.step_seconds(), 12);
  EXPECT_EQ(service.host_seconds(), 7);
  ASSERT_EQ(service.causes_size(), 2);
  EXPECT_EQ(service.causes(0).cause(), "dependency");
  EXPECT_EQ(service.causes(0).seconds(), 4);
  EXPECT_TRUE(why.expected().own_steps());
  EXPECT_EQ(why.expected().steps_left(), 10);
  // A quarter of a device-second a second: 60 are left.
  EXPECT_EQ(why.expected().end().seconds(), 1'700'000'240);

  pool.active[1].priority = Priority::kUrgent;
  why = Explain(pool);
  EXPECT_EQ(why.service().fair_share(), 0);
  EXPECT_EQ(why.service().urgent_jobs(), 1);
  EXPECT_EQ(why.expected().end_unknown(), v1::UNKNOWN_TIME_LENGTH);
  pool.active[1].priority = Priority::kBackfill;
  why = Explain(pool);
  EXPECT_EQ(why.service().fair_share(), 0.5);
  EXPECT_EQ(why.service().backfill_jobs(), 1);
  pool.devices_up = 0;
  pool.devices_lost = 1;
  pool.devices_out = 1;
  why = Explain(pool);
  EXPECT_EQ(KindsOf(why.obstacles()), Kinds{v1::OBSTACLE_NO_DEVICE});
  EXPECT_EQ(why.devices().lost(), 1);
  EXPECT_EQ(why.devices().out(), 1);
  EXPECT_EQ(why.expected().end_unknown(), v1::UNKNOWN_TIME_NO_DEVICE);
}

TEST(ExplanationTest, EveryStateSaysSomething) {
  for (const JobState state : AllJobStates()) {
    PoolSnapshot pool = TestPool();
    AskAbout("job-7", kAnn, state, pool);
    const v1::JobExplanation why = Explain(pool);
    // It may be between two states, as when it is stored before it is queued.
    if (state != JobState::kQueued) {
      EXPECT_EQ(why.obstacles_size(), 1) << JobStateName(state);
    }
    EXPECT_FALSE(why.has_queue());
    EXPECT_FALSE(why.expected().has_start()) << JobStateName(state);
  }
}

}  // namespace
}  // namespace roundhouse
