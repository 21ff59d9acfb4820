#include "server/observe/status_board.h"

#include <stdio.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace roundhouse {
namespace {

using Json = nlohmann::json;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kNow = int64_t{1'000'000} * kMs;

StatusSnapshot Snapshot() {
  StatusSnapshot snapshot;
  snapshot.time = absl::FromUnixSeconds(1'800'000'000);
  snapshot.start_time = snapshot.time - absl::Minutes(5);
  snapshot.now_ns = kNow;
  snapshot.version = "1.2.3";
  snapshot.max_running_jobs = 2;
  return snapshot;
}

SlotBlock Block(const std::string& job, int64_t from_ms, int64_t to_ms) {
  return {.job = job,
          .started_ns = kNow - kSlotWindowNs + from_ms * kMs,
          .ended_ns = kNow - kSlotWindowNs + to_ms * kMs,
          .compute_ns = (to_ms - from_ms) * kMs / 2,
          .slots = 3,
          .passes = 5,
          .first_step = 10,
          .last_step = 11,
          .layers = {2, 4}};
}

TEST(StatusJsonTest, Server) {
  const Json json = Json::parse(StatusJson(Snapshot()));
  EXPECT_EQ(json["time_ms"], 1'800'000'000'000);
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["uptime_seconds"], 300);
  EXPECT_EQ(json["window_ms"], 60000);
  EXPECT_EQ(json["stopping"], false);
  for (const char* list :
       {"devices", "jobs", "queue", "ended", "timeline_jobs"}) {
    EXPECT_EQ(json[list], Json::array()) << list;
  }
}

TEST(StatusJsonTest, DevicesAndTheirTimeline) {
  StatusSnapshot snapshot = Snapshot();
  snapshot.jobs.push_back({.id = "job-9", .color = 3});
  snapshot.ended.push_back({.id = "job-2",
                            .color = 2,
                            .state = JobState::kFailed,
                            .reason = JobReason::kHostMemory,
                            .ended = snapshot.time - absl::Seconds(7)});
  StatusDevice device{
      .index = 1, .kind = "cuda", .product_name = "NVIDIA Test", .state = "up"};
  device.bubble_ratio = 0.123456789;
  device.times.bubble_causes_ns[static_cast<int>(wire::WaitCause::kOptimizer)] =
      1234 * kMs;
  device.slots_since_ns = kNow - kSlotWindowNs + 250 * kMs;
  device.slots = {Block("", -20, 0), Block("job-9", 10, 110),
                  Block("job-2", 150, 250), Block("job-9", 500, 500)};
  snapshot.devices.push_back(device);
  const Json json = Json::parse(StatusJson(snapshot));
  const Json& found = json["devices"][0];
  EXPECT_EQ(found["kind"], "cuda");
  EXPECT_EQ(found["product_name"], "NVIDIA Test");
  EXPECT_EQ(found["bubble_ratio"], 0.12346);
  EXPECT_EQ(found["bubble_causes"]["optimizer"], 1.234);
  EXPECT_EQ(found["bubble_causes"].size(), 7u);
  EXPECT_EQ(found["slots_since_ms"], 250);
  EXPECT_EQ(json["timeline_jobs"], Json::parse(R"([
      {"id":"job-2","color":2}, {"id":"job-9","color":3},
      {"id":"","color":-1}])"));
  EXPECT_EQ(found["slots"], Json::parse(R"([
      -20,20,10,2,3,5,10,11,2,4, 10,100,50,1,3,5,10,11,2,4,
      150,100,50,0,3,5,10,11,2,4, 500,1,0,1,3,5,10,11,2,4])"));
  EXPECT_EQ(json["ended"][0], Json::parse(R"({"id":"job-2","color":2,
      "state":"FAILED","reason":"HOST_MEMORY","seconds_ago":7})"));
}

TEST(StatusJsonTest, JobsAndQueue) {
  StatusSnapshot snapshot = Snapshot();
  snapshot.jobs.push_back(
      {.id = "job-1",
       .state = JobState::kRunning,
       .step = 30,
       .total_steps = 100,
       .tokens_per_second = 1234.5678,
       .expert_load = ExpertLoadSummary{2.71828, 3, 0.5, 4},
       .eta = snapshot.time + absl::Seconds(90),
       .losses = {{10, 2.718281828},
                  {20, std::numeric_limits<double>::quiet_NaN()}},
       .validation_losses = {{20, 1e-9}}});
  snapshot.jobs.push_back({.id = "job-2"});
  snapshot.queue = {{"job-3", snapshot.time - absl::Minutes(2)}};
  snapshot.queue_count = 17;
  snapshot.validating = 2;
  const Json json = Json::parse(StatusJson(snapshot));
  const Json& job = json["jobs"][0];
  EXPECT_EQ(job["state"], "RUNNING");
  EXPECT_EQ(job["seconds_left"], 90);
  EXPECT_EQ(job["tokens_per_second"], 1234.6);
  EXPECT_EQ(job["expert_load"], Json::parse(R"({"max_over_mean":2.7183,
                                                "layer":3,
                                                "unhit_experts":4})"));
  EXPECT_FALSE(json["jobs"][1].contains("expert_load"));
  EXPECT_EQ(job["losses"],
            Json::parse(R"({"steps":[10,20],"values":[2.7183,null]})"));
  EXPECT_EQ(job["validation_losses"],
            Json::parse(R"({"steps":[20],"values":[1e-9]})"));
  EXPECT_FALSE(json["jobs"][1].contains("seconds_left"));
  EXPECT_EQ(json["queue"],
            Json::parse(R"([{"id":"job-3","waiting_seconds":120}])"));
  EXPECT_EQ(json["queue_count"], 17);
  EXPECT_EQ(json["validating_count"], 2);
}

// Ids are ours; should one ever be not, it stays a string.
TEST(StatusJsonTest, NastyIdsStayStrings) {
  const std::string nasty = "</script><img src=x onerror=alert(1)>\"'\\\n\xff";
  StatusSnapshot snapshot = Snapshot();
  snapshot.jobs.push_back({.id = nasty});
  snapshot.queue.push_back({nasty, snapshot.time});
  const Json json = Json::parse(StatusJson(snapshot));
  const std::string id = json["jobs"][0]["id"];
  EXPECT_EQ(id, nasty.substr(0, nasty.size() - 1) + "\xef\xbf\xbd");
  EXPECT_EQ(json["queue"][0]["id"], id);
}

TEST(ChooseJobColorTest, ItsOwnOrTheNextFreeOne) {
  EXPECT_EQ(ChooseJobColor(1, {}), 1);
  EXPECT_EQ(ChooseJobColor(kJobColors + 1, {}), 1);
  EXPECT_EQ(ChooseJobColor(kJobColors + 1, {1}), 2);
  EXPECT_EQ(ChooseJobColor(kJobColors - 1, {0, kJobColors - 1}), 1);
  std::set<int> all;
  for (int color = 0; color < kJobColors; ++color) all.insert(color);
  EXPECT_EQ(ChooseJobColor(2, all), 2);
}

// As much as there can be.
StatusSnapshot Full() {
  StatusSnapshot snapshot = Snapshot();
  for (int d = 0; d < 8; ++d) {
    StatusDevice device{.index = d, .kind = "cpu", .state = "up"};
    for (int i = 0; i < static_cast<int>(kMaxSlotBlocks); ++i) {
      device.slots.push_back(
          Block(absl::StrCat("job-", 1000 + i % 64), i * 50, i * 50 + 47));
    }
    snapshot.devices.push_back(device);
  }
  for (int j = 0; j < 64; ++j) {
    StatusJob job{.id = absl::StrCat("job-", 1000 + j)};
    for (int i = 0; i < static_cast<int>(kMaxLossPoints); ++i) {
      job.losses.push_back({i * 50, 2.0 + std::sin(i)});
      job.validation_losses.push_back({i * 50, 2.0 + std::cos(i)});
    }
    snapshot.jobs.push_back(job);
  }
  for (size_t q = 0; q < kMaxShownQueue; ++q) {
    snapshot.queue.push_back({absl::StrCat("job-", 2000 + q), snapshot.time});
  }
  return snapshot;
}

TEST(StatusJsonTest, AFullPageIsBounded) {
  const StatusSnapshot snapshot = Full();
  const auto start = std::chrono::steady_clock::now();
  const std::string json = StatusJson(snapshot);
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - start;
  StatusBoard board;
  const auto copy = std::chrono::steady_clock::now();
  board.Publish(snapshot);
  const std::chrono::duration<double, std::milli> published =
      std::chrono::steady_clock::now() - copy;
  printf(
      "8 devices, 64 jobs, every list full: %zu bytes in %.1f ms; a snapshot "
      "copied and published in %.1f ms\n",
      json.size(), took.count(), published.count());
  EXPECT_LT(json.size(), size_t{1} << 20);
}

TEST(StatusBoardTest, ShowsTheNewest) {
  StatusBoard board;
  EXPECT_FALSE(board.Json().has_value());
  StatusSnapshot snapshot = Snapshot();
  board.Publish(snapshot);
  EXPECT_EQ(*board.Json(), StatusJson(snapshot));
  EXPECT_EQ(*board.Json(), StatusJson(snapshot));
  snapshot.version = "4.5.6";
  board.Publish(snapshot);
  EXPECT_EQ(*board.Json(), StatusJson(snapshot));
}

TEST(StatusBoardTest, ManyThreads) {
  StatusBoard board;
  board.Publish(Snapshot());
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&board] {
      int64_t newest = 0;
      for (int i = 0; i < 200; ++i) {
        const int64_t running = Json::parse(*board.Json())["max_running_jobs"];
        EXPECT_GE(running, newest);
        newest = running;
      }
    });
  }
  StatusSnapshot snapshot = Snapshot();
  for (int i = 0; i < 200; ++i) {
    ++snapshot.max_running_jobs;
    board.Publish(snapshot);
  }
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace roundhouse
