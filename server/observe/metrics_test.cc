#include "server/observe/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

std::unique_ptr<ServerMetrics> Start(const std::string& listen = "") {
  auto metrics = ServerMetrics::Start(listen);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  return *std::move(metrics);
}

// Every setter once.
void Touch(ServerMetrics* m) {
  m->AddDevice(0);
  m->AddDevice(1);
  m->SetDeviceUp(0, true);
  m->SetDeviceMemory(0, 1 << 20);
  m->AddDeviceTime(0, DeviceTime::kCompute, absl::Milliseconds(1500));
  m->AddDeviceTime(0, DeviceTime::kBubble, absl::Milliseconds(250));
  m->SetBubbleRatio(0, 0.125);
  m->AddTransfer(0, TransferDirection::kHostToDevice, TransferPurpose::kWeights,
                 4096);
  m->CountSlot(1, SlotResult::kReplayed);
  m->ObserveSlot(SlotPassLabel::kFused, SlotPhase::kCompute,
                 absl::Milliseconds(3));
  m->ObserveDispatchLatency(absl::Microseconds(30));
  m->ObserveStep(absl::Milliseconds(40));
  m->ObserveOptimizer(absl::Milliseconds(4));
  m->SetHostArena(ArenaUse::kOptimizer, 77);
  m->SetHostArena(ArenaUse::kOther, 5);
  m->SetHostArenaLimit(1000);
  m->SetJobs({{JobState::kQueued, 2}});
  m->SetJobLoss("job-3", 1.75);
  m->AddJobSteps("job-3", 5);
  m->AddJobTokens("job-3", 640);
  m->SetJobEta("job-3", absl::FromUnixSeconds(1700000000));
  m->ObserveQueueWait(absl::Seconds(2));
  m->ObserveCheckpoint(absl::Seconds(1));
  m->CountCheckpointFailure();
  m->ObserveRecovery(absl::Seconds(1));
}

bool Has(const ServerMetrics& m, const std::string& line) {
  const std::string text = m.Render();
  for (absl::string_view l : absl::StrSplit(text, '\n')) {
    if (l == line) return true;
  }
  return false;
}

TEST(MetricsTest, ValuesAndLabels) {
  auto m = Start();
  Touch(m.get());
  for (const char* line :
       {"roundhouse_device_time_seconds_total{device=\"0\",state=\"compute\"} "
        "1.5",
        "roundhouse_device_time_seconds_total{device=\"1\",state=\"fenced\"} 0",
        "roundhouse_device_bubble_ratio{device=\"0\"} 0.125",
        "roundhouse_device_up{device=\"0\"} 1",
        "roundhouse_device_up{device=\"1\"} 0",
        "roundhouse_pcie_transfer_bytes_total{device=\"0\",direction=\"h2d\","
        "purpose=\"weights\"} 4096",
        "roundhouse_slots_total{device=\"1\",result=\"replayed\"} 1",
        "roundhouse_slots_total{device=\"1\",result=\"ok\"} 0",
        "roundhouse_step_duration_seconds_count 1",
        "roundhouse_slot_duration_seconds_count{pass=\"fused\",phase="
        "\"compute\"} 1",
        "roundhouse_slot_duration_seconds_sum{pass=\"fused\",phase="
        "\"compute\"} 0.003",
        "roundhouse_optimizer_duration_seconds_sum 0.004",
        "roundhouse_checkpoint_duration_seconds_sum 1",
        "roundhouse_checkpoint_failures_total 1",
        "roundhouse_recovery_duration_seconds_sum 1",
        "roundhouse_host_arena_bytes{kind=\"optimizer\"} 77",
        "roundhouse_host_arena_bytes{kind=\"other\"} 5",
        "roundhouse_jobs{state=\"QUEUED\"} 2",
        "roundhouse_jobs{state=\"RUNNING\"} 0",
        "roundhouse_job_loss{job=\"job-3\"} 1.75",
        "roundhouse_job_steps_total{job=\"job-3\"} 5",
        "roundhouse_job_tokens_total{job=\"job-3\"} 640"}) {
    EXPECT_TRUE(Has(*m, line)) << line << "\n" << m->Render();
  }
}

TEST(MetricsTest, CheckpointFailuresBeginAtZero) {
  EXPECT_TRUE(Has(*Start(), "roundhouse_checkpoint_failures_total 0"));
}

TEST(MetricsTest, ADroppedJobLeavesNoSeries) {
  auto m = Start();
  Touch(m.get());
  m->DropJob("job-3");
  m->DropJob("job-3");
  EXPECT_FALSE(absl::StrContains(m->Render(), "job=\"job-3\""));
  m->SetJobLoss("job-3", 2);
  EXPECT_TRUE(Has(*m, "roundhouse_job_loss{job=\"job-3\"} 2"));
}

TEST(MetricsTest, SeriesAreBounded) {
  auto m = Start();
  for (int d = 0; d < 16; ++d) m->AddDevice(d);
  Touch(m.get());
  for (int i = 0; i < 2000; ++i) {
    m->SetJobLoss(absl::StrCat("job-", i), 1);
    m->AddJobSteps(absl::StrCat("job-", i), 1);
    m->AddJobTokens(absl::StrCat("job-", i), 1);
    m->SetJobEta(absl::StrCat("job-", i), absl::UnixEpoch());
  }
  int series = 0;
  const std::string text = m->Render();
  for (absl::string_view l : absl::StrSplit(text, '\n')) {
    series += !l.empty() && l[0] != '#' ? 1 : 0;
  }
  EXPECT_LE(series, 3000);
  EXPECT_TRUE(absl::StrContains(text, "job=\"job-400\""));
}

TEST(MetricsTest, ManyThreads) {
  auto m = Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&m, t] {
      for (int i = 0; i < 500; ++i) {
        m->AddJobSteps("job-1", 1);
        m->CountSlot(0, SlotResult::kOk);
        if (t == 0) m->DropJob("job-2");
        m->SetJobLoss("job-2", i);
        if (i % 100 == 0) m->Render();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(Has(*m, "roundhouse_job_steps_total{job=\"job-1\"} 2000"));
  EXPECT_TRUE(
      Has(*m, "roundhouse_slots_total{device=\"0\",result=\"ok\"} 2000"));
}

TEST(MetricsTest, PromtoolIsContent) {
  const char* const kPromtool = "/usr/bin/promtool";
  ASSERT_EQ(access(kPromtool, X_OK), 0)
      << "install it with deploy/install-deps --test";
  auto m = Start();
  Touch(m.get());
  FILE* promtool =
      popen(absl::StrCat(kPromtool, " check metrics 2>&1 >&2").c_str(), "w");
  ASSERT_NE(promtool, nullptr);
  const std::string text = m->Render();
  ASSERT_EQ(fwrite(text.data(), 1, text.size(), promtool), text.size());
  EXPECT_EQ(pclose(promtool), 0);
}

// GET /metrics over a plain socket.
std::string Scrape(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(parts[1], &port));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<struct sockaddr*>(&to), sizeof(to)),
            0);
  const std::string request =
      "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(write(fd, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    all.append(buffer, n);
  }
  close(fd);
  return all;
}

TEST(MetricsTest, ServesOnTheLoopback) {
  auto m = Start("127.0.0.1:0");
  Touch(m.get());
  ASSERT_TRUE(absl::StartsWith(m->address(), "127.0.0.1:"));
  const std::string answer = Scrape(m->address());
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200")) << answer;
  EXPECT_TRUE(absl::StrContains(answer, "roundhouse_job_loss{job=\"job-3\"}"));
  // The port is taken now.
  const auto second = ServerMetrics::Start(m->address());
  EXPECT_TRUE(absl::StrContains(std::string(second.status().message()),
                                "is the port taken?"))
      << second.status();
}

TEST(MetricsTest, OnlyTheLoopback) {
  for (const char* bad :
       {"0.0.0.0:9464", "9464", ":9464", "192.168.1.1:80", "127.0.0.1",
        "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:80,0.0.0.0:81"}) {
    const auto m = ServerMetrics::Start(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(m.status())) << bad;
    EXPECT_TRUE(absl::StrContains(std::string(m.status().message()), bad));
  }
}

}  // namespace
}  // namespace roundhouse
