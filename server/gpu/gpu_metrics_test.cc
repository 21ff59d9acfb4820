// Over programs that print a report as the probe does.
#include "server/gpu/gpu_metrics.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/observe/metrics.h"

namespace roundhouse {
namespace {

// What the program does is in a file beside it, so that a test can change it.
class GpuMetricsTest : public testing::Test {
 protected:
  GpuMetricsTest() {
    Do("exit 1");
    std::ofstream(program_) << "#!/bin/sh\n[ \"$1\" = --watch ] && . " << watch_
                            << " && exit\n. " << file_ << "\n";
    Watch("exit 2");
    EXPECT_EQ(chmod(program_.c_str(), 0700), 0);
  }

  void Do(const std::string& lines) {
    std::ofstream(file_ + ".new") << lines << "\n";
    EXPECT_EQ(rename((file_ + ".new").c_str(), file_.c_str()), 0);
  }
  void Watch(const std::string& lines) {
    std::ofstream(watch_) << lines << "\n";
  }
  void Report(const std::string& gpus, int count) {
    Do(absl::StrCat("printf 'roundhouse-gpus 1\\n", gpus, "end=", count,
                    "\\n'"));
  }

  // Looks every millisecond, while probes run, until `done`.
  void RunUntil(std::function<bool()> done) {
    std::function<void()> look = [&] {
      if (done()) return loop_->Quit();
      loop_->After(absl::Milliseconds(1), look);
    };
    loop_->After(absl::ZeroDuration(), look);
    loop_->Run();
  }
  bool Has(const std::string& line) const {
    return absl::StrContains(metrics_->Render(), line);
  }
  std::unique_ptr<GpuMetrics> Start(absl::Duration deadline) {
    wire::Gpu gpu;
    gpu.index = 3;
    gpu.uuid = "GPU-a";
    gpu.name = "NVIDIA Test";
    gpu.temperature_celsius = 30;
    return std::make_unique<GpuMetrics>(
        *loop_, GpuProbeOptions{program_, deadline},
        std::vector<wire::Gpu>{gpu}, metrics_->gpus(),
        [this](int device, const std::string& what) {
          trouble_ = absl::StrCat(device, " ", what);
        },
        absl::Milliseconds(2));
  }

  const std::string file_ = testing::TempDir() + "/what-to-do";
  const std::string watch_ = testing::TempDir() + "/what-to-watch";
  const std::string program_ = testing::TempDir() + "/probe.sh";
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  const std::unique_ptr<ServerMetrics> metrics_ = ServerMetrics::Create();
  std::string trouble_;  // the last that was told
};

constexpr char kTemperature[] =
    "roundhouse_device_temperature_celsius{device=\"0\"} ";

TEST_F(GpuMetricsTest, WhatTheStartFoundIsThereAtOnce) {
  const auto gpus = Start(absl::Minutes(5));
  EXPECT_TRUE(Has(absl::StrCat(kTemperature, 30)));
  EXPECT_TRUE(Has("roundhouse_gpu_probe_failures_total 0"));
}

TEST_F(GpuMetricsTest, ACpuServerHasNone) {
  const GpuMetrics gpus(*loop_, {program_}, {}, metrics_->gpus(), nullptr);
  EXPECT_FALSE(Has("gpu"));
}

// The GPU had another number before.
TEST_F(GpuMetricsTest, ValuesAreRefreshed) {
  const auto gpus = Start(absl::Minutes(5));
  int celsius = 40;
  RunUntil([&] {
    if (celsius > 40 && !Has(absl::StrCat(kTemperature, celsius))) return false;
    Report(absl::StrCat("gpu=0\\nuuid=GPU-b\\nname=B\\n"
                        "temperature_celsius=99\\ngpu=1\\nuuid=GPU-a\\n"
                        "name=A\\ntemperature_celsius=",
                        ++celsius, "\\n"),
           2);
    return celsius == 43;
  });
}

TEST_F(GpuMetricsTest, AProbeThatFailsLeavesNoOldValues) {
  const auto gpus = Start(absl::Minutes(5));
  bool failed = false;
  RunUntil([&] {
    if (!failed && Has("roundhouse_gpu_probe_failures_total 2")) {
      failed = true;
      EXPECT_FALSE(Has(kTemperature));
      Report("gpu=3\\nuuid=GPU-a\\nname=A\\ntemperature_celsius=44\\n", 1);
    }
    return failed && Has(absl::StrCat(kTemperature, 44));
  });
}

// The loop goes on: it is what looks.
TEST_F(GpuMetricsTest, OneThatHangsDoesToo) {
  Do("exec sleep 1000");
  const auto gpus = Start(absl::Milliseconds(20));
  RunUntil([&] { return Has("roundhouse_gpu_probe_failures_total 1"); });
  EXPECT_FALSE(Has(kTemperature));
}

TEST_F(GpuMetricsTest, ALostGpuIsKnownByItsAbsenceToo) {
  const auto gpus = Start(absl::Minutes(5));
  Report("gpu=3\\nfault=GPU is lost\\n", 1);
  RunUntil([&] { return Has("roundhouse_device_gpu_lost{device=\"0\"} 1"); });
  EXPECT_FALSE(Has(kTemperature));
  EXPECT_EQ(trouble_, "0 GPU 3: GPU is lost");
}

// Another GPU's is nobody's.
TEST_F(GpuMetricsTest, XidErrorsAreCountedAndTold) {
  Watch(
      "echo roundhouse-gpu-events 1; echo GPU-b xid 31; echo GPU-a xid 13; "
      "echo GPU-a xid 79; exec sleep 1000");
  const auto gpus = Start(absl::Minutes(5));
  EXPECT_TRUE(Has("roundhouse_device_xid_errors_total{device=\"0\"} 0"));
  RunUntil([&] {
    return Has("roundhouse_device_xid_errors_total{device=\"0\"} 2");
  });
  EXPECT_EQ(trouble_, "0 GPU 3: Xid 79");
}

}  // namespace
}  // namespace roundhouse
