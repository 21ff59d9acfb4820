// `roundhouse why` against a server on a Unix socket.
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

constexpr int64_t kNow = 1'700'000'000;  // 2023-11-14 22:13 UTC

class WhyCommandTest : public ClientTest {
 protected:
  WhyCommandTest() {
    server_.answers().explain = [this](const std::string& name,
                                       v1::ExplainFineTuningJobResponse* out) {
      EXPECT_EQ(name, "a1");
      *out = answer_;
      return grpc::Status::OK;
    };
    why().mutable_time()->set_seconds(kNow);
    why().mutable_since()->set_seconds(kNow - 7500);
    why().mutable_devices()->set_in_use(3);
    why().mutable_devices()->set_out(1);
  }

  v1::JobExplanation& why() { return *answer_.mutable_explanation(); }
  std::string Text(v1::JobState state, v1::JobPriority priority = v1::NORMAL) {
    *answer_.mutable_job() = MakeJob(state);
    answer_.mutable_job()->set_priority(priority);
    EXPECT_EQ(Run({"why", "a1"}), ExitCode::kOk) << err();
    EXPECT_EQ(err(), "");
    std::istringstream lines(out());
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
    }
    return out();
  }
  v1::Obstacle& Add(v1::ObstacleKind kind) {
    v1::Obstacle& obstacle = *why().add_obstacles();
    obstacle.set_kind(kind);
    return obstacle;
  }
  static void SetMemory(v1::MissingMemory* memory) {
    memory->set_needed_bytes(int64_t{40} << 30);
    memory->set_available_bytes(int64_t{12} << 30);
    memory->set_free_bytes(int64_t{20} << 30);
    memory->set_limit_bytes(int64_t{256} << 30);
    v1::MemoryHolder& holder = *memory->add_holders();
    holder.set_job("projects/vision/fineTuningJobs/job-1");
    holder.set_bytes(int64_t{200} << 30);
    v1::MemoryHolder& kept = *memory->add_holders();
    kept.set_bytes(int64_t{30} << 30);
    kept.set_waits(true);
    memory->set_other_bytes(int64_t{6} << 30);
  }

  v1::ExplainFineTuningJobResponse answer_;
};

TEST_F(WhyCommandTest, AJobThatWaitsBehindOthers) {
  Add(v1::OBSTACLE_JOBS_BEFORE);
  v1::QueuePlace& queue = *why().mutable_queue();
  queue.set_place(7);
  queue.set_size(12);
  v1::JobBefore* before = queue.add_before();
  before->set_job("projects/vision/fineTuningJobs/job-3");
  before->set_reason(v1::ORDER_REASON_CLASS);
  before = queue.add_before();
  before->set_job("projects/vision/fineTuningJobs/job-4");
  before->set_reason(v1::ORDER_REASON_CLASS);
  before->set_job_class("normal");
  before = queue.add_before();
  before->set_job("projects/vision/fineTuningJobs/job-2");
  before->set_reason(v1::ORDER_REASON_RAN);
  before = queue.add_before();
  before->set_job("projects/vision/fineTuningJobs/job-5");
  before->set_reason(v1::ORDER_REASON_PROJECT_HAD_LESS);
  before->set_its_hours(1.25);
  before->set_job_hours(8);
  before = queue.add_before();
  before->set_reason(v1::ORDER_REASON_OLDER);
  before->set_passed_over(true);
  queue.set_first("projects/vision/fineTuningJobs/job-3");
  v1::Obstacle& first = *queue.add_first_obstacles();
  first.set_kind(v1::OBSTACLE_HOST_MEMORY);
  SetMemory(first.mutable_memory());
  v1::ExpectedTimes& expected = *why().mutable_expected();
  expected.mutable_start()->set_seconds(kNow + 1560);
  expected.mutable_end()->set_seconds(kNow + 9000);
  expected.set_steps_left(100);
  expected.set_step_device_seconds(12.34);
  expected.set_measured_in("projects/vision/fineTuningJobs/job-1");
  EXPECT_EQ(Text(v1::QUEUED),
            R"(a1 is QUEUED since 2023-11-14 20:08 UTC (2:05:00).
- it is number 7 of 12 in the queue; before it:
    job-3 is urgent
    job-4 is normal
    job-2 ran before, and goes on
    job-5 its project had less of the devices lately: 1.25 device hours for its
    share, this one's 8.00
    another's job has waited for longer (passed over now, by a limit of its
    owner)
    and 1 more
  The first of them that may start: job-3 needs 40.0 GiB of host memory; 12.0
  GiB can be had in one piece, 20.0 GiB of 256.0 GiB are free.
    held: job-1 200.0 GiB, another's job 30.0 GiB (PAUSED, keeps it), all else
          6.0 GiB
expected: start in about 26:00 (2023-11-14 22:39 UTC); end in about 2:30:00
          (2023-11-15 00:43 UTC); with 100 steps of 12.3 s device time each, as
          measured in job-1
devices: 3 devices are in use, 1 lent or fenced
)");
}

TEST_F(WhyCommandTest, AJobThatItsOwnersLimitHoldsUp) {
  v1::ReachedLimit& limit = *Add(v1::OBSTACLE_LIMIT).mutable_limit();
  limit.set_limit("running_jobs");
  limit.set_subject("user:anna\x1b[2J");
  limit.set_value(2);
  limit.set_used(2);
  limit.set_more(1);
  v1::ReachedLimit& most = *Add(v1::OBSTACLE_MAX_RUNNING_JOBS).mutable_limit();
  most.set_used(16);
  SetMemory(Add(v1::OBSTACLE_HOST_MEMORY).mutable_memory());
  why().mutable_queue()->set_place(1);
  why().mutable_expected()->set_start_unknown(v1::UNKNOWN_TIME_LENGTH);
  why().mutable_expected()->set_end_unknown(v1::UNKNOWN_TIME_LENGTH);
  EXPECT_EQ(Text(v1::QUEUED),
            R"(a1 is QUEUED since 2023-11-14 20:08 UTC (2:05:00).
- the limit running_jobs of user:anna\x1b[2J is 2, of which 2 are used. An admin
  changes it with: roundhouse limit set user:anna\x1b[2J running_jobs VALUE
- 16 jobs run, as many as may (--max-running-jobs): one has to end
- it needs 40.0 GiB of host memory; 12.0 GiB can be had in one piece, 20.0 GiB
  of 256.0 GiB are free
    held: job-1 200.0 GiB, another's job 30.0 GiB (PAUSED, keeps it), all else
          6.0 GiB
expected: start not known: how long it, or a job whose end it waits for, still
          takes was not measured yet
devices: 3 devices are in use, 1 lent or fenced
)");
}

TEST_F(WhyCommandTest, AJobThatOthersGiveWayTo) {
  v1::Obstacle& most = Add(v1::OBSTACLE_MAX_RUNNING_JOBS);
  most.mutable_limit()->set_used(2);
  most.set_jobs_give_way(true);
  v1::Obstacle& memory = Add(v1::OBSTACLE_HOST_MEMORY);
  SetMemory(memory.mutable_memory());
  memory.set_jobs_give_way(true);
  memory.mutable_memory()->mutable_holders(0)->set_lower_class(true);
  memory.mutable_memory()->mutable_holders(1)->set_waits(false);
  memory.mutable_memory()->mutable_holders(1)->set_leaves(true);
  EXPECT_EQ(Text(v1::QUEUED),
            R"(a1 is QUEUED since 2023-11-14 20:08 UTC (2:05:00).
- 2 jobs run, as many as may (--max-running-jobs): one of a lower class is saved
  for it
- it needs 40.0 GiB of host memory; 12.0 GiB can be had in one piece, 20.0 GiB
  of 256.0 GiB are free. Jobs of a lower class are saved for it
    held: job-1 200.0 GiB (of a lower class), another's job 30.0 GiB (is being
          saved), all else 6.0 GiB
devices: 3 devices are in use, 1 lent or fenced
)");
}

TEST_F(WhyCommandTest, ABackfillJobGetsWhatOthersLeave) {
  v1::DeviceService& service = *why().mutable_service();
  service.set_window_seconds(300);
  service.set_share(0.25);
  service.set_jobs(2);
  service.set_backfill_jobs(1);
  EXPECT_EQ(Text(v1::RUNNING, v1::BACKFILL),
            R"(a1 is RUNNING since 2023-11-14 20:08 UTC (2:05:00), backfill.
- nothing is in its way: it computes
share: in the last 5:00 it had 25 % of what devices computed; it gets what
       others leave, with 2 jobs that have work, 1 backfill
devices: 3 devices are in use, 1 lent or fenced
)");
}

TEST_F(WhyCommandTest, AJobThatRunsAndIsSlow) {
  v1::DeviceService& service = *why().mutable_service();
  service.set_window_seconds(300);
  service.set_share(0.25);
  service.set_fair_share(0.5);
  service.set_jobs(2);
  service.set_urgent_jobs(1);
  service.set_step_seconds(12.34);
  service.set_host_seconds(45);
  service.set_bubble_seconds(60);
  v1::WaitedFor& cause = *service.add_causes();
  cause.set_cause("dependency");
  cause.set_seconds(59);
  v1::ExpectedTimes& expected = *why().mutable_expected();
  expected.mutable_end()->set_seconds(kNow + 60);
  expected.set_steps_left(1);
  expected.set_step_device_seconds(30);
  expected.set_own_steps(true);
  EXPECT_EQ(Text(v1::RUNNING),
            R"(a1 is RUNNING since 2023-11-14 20:08 UTC (2:05:00).
- nothing is in its way: it computes
share: in the last 5:00 it had 25 % of what devices computed; 50 % is fair now,
       with 2 jobs that have work, 1 urgent
step: 12.3 s
waits: devices waited 60.0 s in all, whichever job's work it was: dependency
       59.0 s
host: 45.0 s of operations on the host
expected: end in about 1:00 (2023-11-14 22:14 UTC); with 1 step of 30.0 s device
          time each, as measured in its own
devices: 3 devices are in use, 1 lent or fenced
)");
}

TEST_F(WhyCommandTest, AJobThatStoppedSaysWhatToDo) {
  Add(v1::OBSTACLE_PAUSED);
  EXPECT_EQ(Text(v1::PAUSED),
            "a1 is PAUSED since 2023-11-14 20:08 UTC (2:05:00).\n"
            "- roundhouse resume a1: it goes on from its last checkpoint\n");
  server_.answers().explain = [](const std::string&,
                                 v1::ExplainFineTuningJobResponse* out) {
    *out->mutable_job() = MakeJob(v1::PAUSED);
    out->mutable_job()->set_reason(v1::STORAGE_FULL);
    out->mutable_job()->set_message("5 MiB are needed");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"why", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(),
            "a1 is PAUSED.\n- STORAGE_FULL: 5 MiB are needed\n"
            "- make room on the server's disk (roundhouse du, roundhouse "
            "prune): it goes on\n  by itself, or now with roundhouse resume "
            "a1\n");
}

// Whatever a newer server says is shown.
TEST_F(WhyCommandTest, EveryObstacleHasASentence) {
  for (int kind = 1; kind <= v1::ObstacleKind_MAX; ++kind) {
    why().clear_obstacles();
    if (kind == v1::OBSTACLE_JOBS_BEFORE) continue;
    Add(static_cast<v1::ObstacleKind>(kind));
    EXPECT_EQ(Text(v1::QUEUED).find("obstacle "), std::string::npos) << kind;
  }
  why().clear_obstacles();
  Add(static_cast<v1::ObstacleKind>(99));
  EXPECT_NE(Text(v1::QUEUED).find("- obstacle 99\n"), std::string::npos);
}

TEST_F(WhyCommandTest, FieldsForScriptsAndCodesForErrors) {
  Add(v1::OBSTACLE_BEING_OPENED);
  *answer_.mutable_job() = MakeJob(v1::QUEUED);
  EXPECT_EQ(Run({"why", "a1", "-o", "json"}), ExitCode::kOk);
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["job"]["state"], "QUEUED");
  EXPECT_FALSE(json["job"].contains("submitted_text"));
  EXPECT_EQ(json["explanation"]["obstacles"][0]["kind"],
            "OBSTACLE_BEING_OPENED");
  EXPECT_EQ(json["explanation"]["devices"]["in_use"], 3);
  EXPECT_EQ(Run({"why", "a1", "-o", "name"}), ExitCode::kOk);
  EXPECT_EQ(out(), "projects/default/fineTuningJobs/a1\n");
  EXPECT_EQ(Run({"why"}), ExitCode::kUsage);
  server_.answers().explain = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no job a1");
  };
  EXPECT_EQ(Run({"why", "a1"}), ExitCode::kNotFound);
}

}  // namespace
}  // namespace roundhouse::client
