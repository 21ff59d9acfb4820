#include "base/wire/gpu_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

Gpu Healthy(uint32_t index) {
  Gpu gpu;
  gpu.index = index;
  gpu.uuid = absl::StrCat("GPU-5a0f6b7c-0000-1111-2222-33334444000", index);
  gpu.name = "NVIDIA GeForce RTX 4090";
  gpu.pci_bus_id = "00000000:01:00.0";
  gpu.memory_total_bytes = 25757220864;
  gpu.pcie_replays = UINT32_MAX;
  gpu.temperature_celsius = 0;
  return gpu;
}

// GPU 1 is lost, 0 and 4 are not.
GpuReport Three() {
  GpuReport report;
  report.driver = "580.65.06";
  Gpu lost;
  lost.index = 1;
  lost.fault = "GPU is lost";
  report.gpus = {Healthy(0), lost, Healthy(4)};
  report.gpus[0].peers = 1 << 4;
  report.gpus[2].peers = 0;
  return report;
}

const char kText[] =
    "roundhouse-gpus 1\n"
    "driver=580.65.06\n"
    "gpu=0\n"
    "uuid=GPU-5a0f6b7c-0000-1111-2222-333344440000\n"
    "name=NVIDIA GeForce RTX 4090\n"
    "pci_bus_id=00000000:01:00.0\n"
    "memory_total_bytes=25757220864\n"
    "peers=16\n"
    "pcie_replays=4294967295\n"
    "temperature_celsius=0\n"
    "gpu=1\n"
    "fault=GPU is lost\n"
    "gpu=4\n"
    "uuid=GPU-5a0f6b7c-0000-1111-2222-333344440004\n"
    "name=NVIDIA GeForce RTX 4090\n"
    "pci_bus_id=00000000:01:00.0\n"
    "memory_total_bytes=25757220864\n"
    "peers=0\n"
    "pcie_replays=4294967295\n"
    "temperature_celsius=0\n"
    "end=3\n";

void ExpectRefused(const std::string& text, const std::string& what) {
  const auto report = DecodeGpuReport(text);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_NE(report.status().message().find(what), std::string::npos)
      << report.status() << "\nnot: " << what;
}

// kText with one piece replaced, which has to be there.
std::string With(const std::string& old, const std::string& fresh) {
  std::string text = kText;
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), fresh);
}

TEST(GpuReportTest, IsATextThatComesBackWhole) {
  const auto text = Encode(Three());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, kText);
  const auto report = DecodeGpuReport(*text);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(*report, Three());
}

TEST(GpuReportTest, AMachineMayHaveNoGpus) {
  const auto report = DecodeGpuReport("roundhouse-gpus 1\nend=0\n");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(*report, GpuReport());
}

TEST(GpuReportTest, EveryCutIsNoticed) {
  const std::string text = kText;
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(DecodeGpuReport(text.substr(0, size)).ok()) << size;
  }
}

TEST(GpuReportTest, WhatIsWrongIsNamed) {
  ExpectRefused(With("gpus 1", "gpus 2"), "line 1: want \"roundhouse-gpus 1\"");
  ExpectRefused(With("gpu=0\n", ""), "line 3: GPU report: uuid: before");
  ExpectRefused(With("gpu=4", "gpu=1"), "gpu: indices do not rise");
  ExpectRefused(With("gpu=1", "gpu=x"), "gpu: \"x\" is no number");
  ExpectRefused(With("gpu=1", "gpu=4294967296"), "gpu: index out of range");
  ExpectRefused(With("name=", "title="), "title: is no field");
  ExpectRefused(With("name=NVIDIA GeForce RTX 4090\n", ""), "name: is missing");
  ExpectRefused(With("fault=GPU is lost\n", ""), "uuid: is missing");
  ExpectRefused(With("fault=GPU is lost", "fault="), "fault: has no value");
  ExpectRefused(With("name=NVIDIA", "uuid=NVIDIA"), "uuid: is there twice");
  ExpectRefused(With("44440004", "44440000"), "is there twice");
  ExpectRefused(With("uuid=GPU-", "uuid=GPU-0,"), "uuid: \"GPU-0,5a0f");
  ExpectRefused(With("uuid=GPU-", "uuid="), "uuid: \"5a0f");
  ExpectRefused(With("NVIDIA", "NVIDIA\t"),
                "name: has other than printable ASCII");
  ExpectRefused(With("NVIDIA", std::string(90, 'N')),
                "name: 107 characters; the limit is 96");
  ExpectRefused(With("=4294967295", "=4294967296"),
                "pcie_replays: 4294967296 is more than 4294967295");
  ExpectRefused(With("=4294967295", "=-1"), "pcie_replays: \"-1\"");
  ExpectRefused(With("peers=16", "peers=17"), "peers: GPU 0 is its own");
  ExpectRefused(With("peers=16", "peers=4"),
                "peers: GPU 0 has one that is not in the report");
  ExpectRefused(With("peers=16", "peers=18446744073709551616"),
                "peers: \"18446744073709551616\" is no number");
  ExpectRefused(With("temperature_celsius=0", "hot"), "want FIELD=VALUE");
  ExpectRefused(With("end=3", "end=2"), "end: 2 GPUs; there are 3");
  ExpectRefused(With("end=3\n", ""), "end: is missing");
  ExpectRefused(absl::StrCat(kText, "gpu=5\n"), "end: a line after it");
  ExpectRefused(With("driver=", "driver=1\ndriver="), "driver: is there twice");
}

TEST(GpuReportTest, EncodeRefusesTheSame) {
  GpuReport report = Three();
  report.gpus[0].name = "two\nlines";
  EXPECT_EQ(Encode(report).status().code(), absl::StatusCode::kInvalidArgument);
  report = Three();
  report.gpus[2].uuid.clear();
  EXPECT_EQ(Encode(report).status().code(), absl::StatusCode::kInvalidArgument);
  report = Three();
  report.gpus[2].peers = 1 << 4;
  EXPECT_EQ(Encode(report).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GpuReportTest, EveryGpuMayReachEveryOther) {
  GpuReport report;
  for (uint32_t i = 0; i < kMaxGpus; ++i) {
    Gpu gpu = Healthy(0);
    gpu.index = i;
    gpu.uuid = absl::StrCat("GPU-", i);
    gpu.peers = ~(uint64_t{1} << i);
    report.gpus.push_back(gpu);
  }
  const auto text = Encode(report);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*DecodeGpuReport(*text), report);
  // Beyond the bits there is no GPU to name.
  report.gpus.back().index = kMaxGpus;
  EXPECT_FALSE(Encode(report).ok());
}

TEST(GpuReportTest, AFullReportFitsAndOneMoreDoesNot) {
  GpuReport report;
  for (uint32_t i = 0; i < kMaxGpus; ++i) {
    Gpu gpu = Healthy(0);
    gpu.index = 1'000'000 + i;
    gpu.uuid =
        absl::StrCat("GPU-", std::string(kMaxGpuTextBytes - 6, 'f'), 10 + i);
    gpu.name = gpu.fault = gpu.pci_bus_id = std::string(kMaxGpuTextBytes, 'n');
    gpu.memory_free_bytes = gpu.pcie_rx_bytes_per_second =
        gpu.pcie_tx_bytes_per_second = uint64_t{1} << 50;
    gpu.compute_major = gpu.compute_minor = 999;
    gpu.numa_node = 4095;
    gpu.pcie_generation = gpu.pcie_max_generation = 15;
    gpu.pcie_width = gpu.pcie_max_width = 64;
    gpu.power_milliwatts = gpu.power_limit_milliwatts = 100'000'000;
    gpu.sm_clock_mhz = 1'000'000;
    gpu.utilization_percent = 100;
    report.gpus.push_back(gpu);
  }
  const auto text = Encode(report);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_LT(text->size(), kMaxGpuReportBytes);
  EXPECT_EQ(*DecodeGpuReport(*text), report);
  ExpectRefused(absl::StrReplaceAll(*text, {{"end=64", "gpu=2000000"}}),
                "gpu: more than 64");
  ExpectRefused(*text + std::string(kMaxGpuReportBytes, 'x'), "too long");
}

}  // namespace
}  // namespace roundhouse::wire
