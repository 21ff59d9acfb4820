#include "server/observe/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "server/observe/gpu_series.h"
#include "server/observe/user_series.h"

namespace roundhouse {
namespace {

std::unique_ptr<ServerMetrics> Start() { return ServerMetrics::Create(); }

wire::Gpu SomeGpu() {
  wire::Gpu gpu;
  gpu.memory_total_bytes = gpu.memory_free_bytes = 1 << 30;
  gpu.pcie_generation = gpu.pcie_max_generation = 4;
  gpu.pcie_width = gpu.pcie_max_width = 16;
  gpu.pcie_rx_bytes_per_second = gpu.pcie_tx_bytes_per_second = 1;
  gpu.pcie_replays = gpu.temperature_celsius = gpu.sm_clock_mhz = 1;
  gpu.power_milliwatts = gpu.power_limit_milliwatts = 1;
  gpu.utilization_percent = 1;
  return gpu;
}

// Every setter once.
void Touch(ServerMetrics* m) {
  m->AddDevice(0);
  m->AddDevice(1);
  m->SetDeviceUp(0);
  m->SetDeviceMemory(0, 1 << 20);
  m->SetDevicePinned(0, 1 << 30);
  m->AddDeviceTime(0, DeviceTime::kCompute, absl::Milliseconds(1500));
  m->AddDeviceTime(0, DeviceTime::kBubble, absl::Milliseconds(250));
  m->AddBubble(0, wire::WaitCause::kOptimizer, absl::Milliseconds(250));
  m->AddFilledBubble(0, absl::Milliseconds(125));
  m->SetBubbleRatio(0, 0.125);
  m->AddLinkBusy(0, wire::Direction::kD2H, absl::Seconds(2));
  m->SetLinkUtilization(0, wire::Direction::kD2H, 0.5);
  m->SetLinkRate(0, wire::Direction::kH2D, 1.25e8);
  m->SetLinkRate(0, wire::Direction::kD2H, 1.5e8);
  m->gpus().Set(0, SomeGpu());
  m->gpus().CountProbeFailures(1);
  m->gpus().CountXidErrors(0, 2);
  m->AddTransfer(0, wire::Direction::kH2D, wire::Purpose::kWeights, 4096);
  m->CountSlot(1, SlotResult::kReplayed);
  m->CountSumExchanges(5, 1);
  m->ObserveSlot(SlotKind::kFused, SlotPhase::kCompute, absl::Milliseconds(3));
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
  m->SetJobLossScale("job-3", 32768);
  m->AddJobSkippedSteps("job-3", 2);
  m->SetJobExperts(
      "job-3", {{.layer = 1, .max_over_mean = 2.5, .entropy = 0.75, .unhit = 3},
                {.layer = 4, .max_over_mean = 1, .entropy = 1}});
  m->SetJobEta("job-3", absl::FromUnixSeconds(1700000000));
  m->SetJobShare("job-3", 0.75);
  m->SetJobInfo("job-3", {"anna", "qwen3", "lora"});
  m->SetDiskFree(1 << 30);
  m->ObserveCommit(absl::Milliseconds(2));
  m->ObserveCall("roundhouse.v1.PlanService", "Plan", "OK",
                 absl::Milliseconds(4));
  m->ObserveQueueWait(Priority::kUrgent, absl::Seconds(2));
  m->ObservePreemption(absl::Milliseconds(5));
  m->users().AddService("anna", 0, 2'500'000'000);
  m->users().Set({{"anna", {.queued = 1, .running = 2, .lag_seconds = -3}}}, 0);
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
        "roundhouse_device_pinned_bytes{device=\"0\"} 1073741824",
        "roundhouse_device_pinned_bytes{device=\"1\"} 0",
        "roundhouse_device_bubble_seconds_total{cause=\"optimizer\",device="
        "\"0\"} 0.25",
        "roundhouse_device_bubble_seconds_total{cause=\"memory\",device="
        "\"1\"} 0",
        "roundhouse_device_filled_bubble_seconds_total{device=\"0\"} 0.125",
        "roundhouse_pcie_busy_seconds_total{device=\"0\",direction=\"d2h\"} "
        "2",
        "roundhouse_pcie_utilization_ratio{device=\"0\",direction=\"d2h\"} "
        "0.5",
        "roundhouse_pcie_calibrated_bytes_per_second{device=\"0\",direction="
        "\"h2d\"} 125000000",
        "roundhouse_job_service_share_ratio{job=\"job-3\"} 0.75",
        "roundhouse_job_info{job=\"job-3\",method=\"lora\",model=\"qwen3\","
        "user=\"anna\"} 1",
        "roundhouse_disk_free_bytes 1073741824",
        "roundhouse_db_commit_duration_seconds_sum 0.002",
        "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"Plan\",grpc_"
        "service=\"roundhouse.v1.PlanService\"} 1",
        "grpc_server_handling_seconds_count{grpc_method=\"Plan\",grpc_service="
        "\"roundhouse.v1.PlanService\"} 1",
        "roundhouse_device_up{device=\"0\"} 1",
        "roundhouse_device_up{device=\"1\"} 0",
        "roundhouse_pcie_transfer_bytes_total{device=\"0\",direction=\"h2d\","
        "purpose=\"weights\"} 4096",
        "roundhouse_slots_total{device=\"1\",result=\"replayed\"} 1",
        "roundhouse_slots_total{device=\"1\",result=\"ok\"} 0",
        "roundhouse_sum_exchanges_total{result=\"ok\"} 5",
        "roundhouse_sum_exchanges_total{result=\"failed\"} 1",
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
        "roundhouse_job_tokens_total{job=\"job-3\"} 640",
        "roundhouse_job_loss_scale{job=\"job-3\"} 32768",
        "roundhouse_job_skipped_steps_total{job=\"job-3\"} 2"}) {
    EXPECT_TRUE(Has(*m, line)) << line << "\n" << m->Render();
  }
}

TEST(MetricsTest, LoadsOfExpertsAreByLayer) {
  auto m = Start();
  Touch(m.get());
  for (const char* line :
       {"roundhouse_job_expert_max_over_mean_ratio{job=\"job-3\",layer=\"1\"} "
        "2.5",
        "roundhouse_job_expert_entropy_ratio{job=\"job-3\",layer=\"4\"} 1",
        "roundhouse_job_unhit_experts{job=\"job-3\",layer=\"1\"} 3"}) {
    EXPECT_TRUE(Has(*m, line)) << line << "\n" << m->Render();
  }
}

TEST(MetricsTest, WhatUsersHaveAndHowLongTheirJobsWait) {
  auto m = Start();
  Touch(m.get());
  for (const char* line :
       {"roundhouse_user_service_seconds_total{user=\"anna\"} 2.5",
        "roundhouse_user_service_lag_seconds{user=\"anna\"} -3",
        "roundhouse_user_jobs{state=\"queued\",user=\"anna\"} 1",
        "roundhouse_user_jobs{state=\"running\",user=\"anna\"} 2",
        "roundhouse_queue_wait_seconds_sum{class=\"urgent\"} 2",
        "roundhouse_preemption_latency_seconds_sum 0.005"}) {
    EXPECT_TRUE(Has(*m, line)) << line << "\n" << m->Render();
  }
}

TEST(MetricsTest, WhatHasNotHappenedYetIsZero) {
  auto m = Start();
  for (const char* line :
       {"roundhouse_checkpoint_failures_total 0",
        "roundhouse_checkpoint_duration_seconds_count 0",
        "roundhouse_db_commit_duration_seconds_count 0",
        "roundhouse_recovery_duration_seconds_count 0",
        "roundhouse_slot_dispatch_latency_seconds_count 0",
        "roundhouse_queue_wait_seconds_count{class=\"normal\"} 0",
        "roundhouse_queue_wait_seconds_count{class=\"urgent\"} 0",
        "roundhouse_preemption_latency_seconds_count 0",
        "roundhouse_slot_duration_seconds_count{pass=\"evaluate\",phase="
        "\"d2h\"} 0"}) {
    EXPECT_TRUE(Has(*m, line)) << line;
  }
}

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// "| `name` | type | labels | help |", as docs/metrics.md has it.
using Rows = std::set<std::string>;

Rows DocumentedRows() {
  Rows rows;
  const std::string text = FileText("docs/metrics.md");
  // What is not there yet is in a table of its own.
  const std::string there = text.substr(0, text.find("\n## "));
  for (absl::string_view line : absl::StrSplit(there, '\n')) {
    if (absl::StartsWith(line, "| `")) rows.emplace(line);
  }
  return rows;
}

Rows RowsOf(const prometheus::MetricFamily& family) {
  constexpr const char* kTypes[] = {"counter", "gauge", "summary", "untyped",
                                    "histogram"};
  Rows rows;
  for (const prometheus::ClientMetric& metric : family.metric) {
    std::set<std::string> labels;
    for (const auto& label : metric.label) labels.insert(label.name);
    const std::string names = absl::StrJoin(labels, ", ");
    rows.insert(absl::StrCat(
        "| `", family.name, "` | ", kTypes[static_cast<int>(family.type)],
        " | ", names, names.empty() ? "" : " ", "| ", family.help, " |"));
  }
  return rows;
}

TEST(MetricsTest, TheDocumentationSaysWhatIsThere) {
  auto m = Start();
  Touch(m.get());
  Rows there;
  for (const auto& family : m->Collect()) there.merge(RowsOf(family));
  EXPECT_EQ(there, DocumentedRows());
}

TEST(MetricsTest, EveryNameThatIsDeclaredWasChecked) {
  auto m = Start();
  Touch(m.get());
  std::set<std::string> declared, there;
  for (const auto& family : m->Collect()) there.insert(family.name);
  const std::string source = FileText("server/observe/metric_families.cc");
  for (absl::string_view piece : absl::StrSplit(source, '"')) {
    if (absl::StartsWith(piece, "roundhouse_") ||
        absl::StartsWith(piece, "grpc_server_")) {
      declared.emplace(piece);
    }
  }
  EXPECT_EQ(there, declared);
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
  for (int d = 0; d < 16; ++d) {
    m->AddDevice(d);
    m->SetLinkRate(d, wire::Direction::kH2D, 1);
    m->SetLinkRate(d, wire::Direction::kD2H, 1);
    m->gpus().Set(d, SomeGpu());
  }
  Touch(m.get());
  // The API has 40 methods; of each some calls fail.
  for (int i = 0; i < 40; ++i) {
    for (const char* code : {"OK", "NOT_FOUND", "INVALID_ARGUMENT"}) {
      m->ObserveCall("roundhouse.v1.SomeService", absl::StrCat("Method", i),
                     code, absl::Seconds(1));
    }
  }
  for (int i = 0; i < 2000; ++i) {
    m->SetJobLoss(absl::StrCat("job-", i), 1);
    m->AddJobSteps(absl::StrCat("job-", i), 1);
    m->AddJobTokens(absl::StrCat("job-", i), 1);
    m->SetJobLossScale(absl::StrCat("job-", i), 1);
    m->AddJobSkippedSteps(absl::StrCat("job-", i), 1);
    m->SetJobEta(absl::StrCat("job-", i), absl::UnixEpoch());
    m->SetJobShare(absl::StrCat("job-", i), 0);
    m->SetJobInfo(absl::StrCat("job-", i), {"u", "llama", "full"});
    m->users().AddService(absl::StrCat("user", i), 0, 1);
  }
  int series = 0;
  const std::string text = m->Render();
  for (absl::string_view l : absl::StrSplit(text, '\n')) {
    series += !l.empty() && l[0] != '#' ? 1 : 0;
  }
  EXPECT_LE(series, 3000);
  std::cout << series << " series\n";
  EXPECT_TRUE(absl::StrContains(text, "job=\"job-90\""));
  EXPECT_TRUE(absl::StrContains(text, "user=\"user60\""));
  EXPECT_TRUE(absl::StrContains(text, "user=\"other\""));
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

}  // namespace
}  // namespace roundhouse
