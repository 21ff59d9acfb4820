#include "server/jobs/status_publisher.h"

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/devices/device_keeper.h"
#include "server/workers/process_pool.h"

namespace roundhouse {
namespace {

class StatusPublisherTest : public testing::Test {
 protected:
  nlohmann::json Published() {
    publisher_.Publish({.running = running_,
                        .keeper = keeper_,
                        .queue = queue_,
                        .turn_of = turn_of_,
                        .validating = 2});
    return nlohmann::json::parse(*board_.Json());
  }

  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  const std::unique_ptr<HostArena> arena_ = *HostArena::Create(1 << 20, 4);
  const std::unique_ptr<ServerMetrics> metrics_ = ServerMetrics::Create();
  const std::unique_ptr<ProcessPool> pool_ =
      *ProcessPool::Create(*loop_, *arena_, {.device_count = 2});
  RunningJobs running_{*loop_, *arena_, *pool_, *metrics_, {}, {}};
  DeviceKeeper keeper_{*loop_, *pool_, running_.dispatch()};
  JobQueue queue_;
  JobQueue::TurnOf turn_of_ = [](const JobOwner&) { return JobQueue::Turn{}; };
  StatusBoard board_;
  StatusPublisher publisher_{&board_, 3, 1 << 20};
};

TEST_F(StatusPublisherTest, ShowsTheQueueAndWhatHasEnded) {
  queue_.Add({"job-4", absl::Now()});
  publisher_.ShowEnded("job-1", -1, JobState::kFailed,
                       JobReason::kInvalidModel);
  publisher_.ShowEnded("job-2", 0, JobState::kRunning, JobReason::kNone);
  const nlohmann::json json = Published();
  EXPECT_NE(json.dump().find("job-4"), std::string::npos) << json;
  EXPECT_NE(json.dump().find("job-1"), std::string::npos) << json;
  EXPECT_EQ(json.dump().find("job-2"), std::string::npos)
      << "it has not ended: " << json;
}

TEST_F(StatusPublisherTest, WhatGoesOnIsNotShownAsEnded) {
  publisher_.ShowEnded("job-1", -1, JobState::kPaused, JobReason::kNone);
  publisher_.HideEnded("job-1");
  EXPECT_EQ(Published().dump().find("job-1"), std::string::npos);
}

TEST_F(StatusPublisherTest, NobodyLooksNothingIsDone) {
  const StatusPublisher nobody(nullptr, 1, 0);
  nobody.Publish({.running = running_,
                  .keeper = keeper_,
                  .queue = queue_,
                  .turn_of = turn_of_});
  EXPECT_FALSE(board_.Json().has_value());
}

TEST_F(StatusPublisherTest, WithoutRunningJobsNothingIsTakenOfMemoryOrPlaces) {
  EXPECT_EQ(running_.PlacesTaken(), 0);
  EXPECT_EQ(running_.TableBytes(), 0u);
  EXPECT_EQ(running_.Find("job-1"), nullptr);
  EXPECT_GE(StatusPublisher::ChooseColor("job-1", running_), 0);
}

}  // namespace
}  // namespace roundhouse
