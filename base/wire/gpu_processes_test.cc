#include "base/wire/gpu_processes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

TEST(GpuProcessesTest, ALineIsReadAsItWasWritten) {
  GpuProcesses gpu{.uuid = "GPU-5a0f", .memory_bytes = 25757220864};
  EXPECT_EQ(EncodeGpuProcesses(gpu), "GPU-5a0f 25757220864");
  EXPECT_EQ(*DecodeGpuProcesses("GPU-5a0f 25757220864"), gpu);
  gpu.memory_bytes.reset();
  gpu.processes = {
      {.pid = 812, .memory_bytes = 52428800, .uid = 0, .name = "Xorg"},
      {.pid = 4711, .compute = true, .busy_percent = 35}};
  const std::string line =
      "GPU-5a0f - 812,graphics,52428800,-,0,Xorg 4711,compute,-,35,-,-";
  EXPECT_EQ(EncodeGpuProcesses(gpu), line);
  EXPECT_EQ(*DecodeGpuProcesses(line), gpu);
}

TEST(GpuProcessesTest, WhyTheyAreNotKnownIsSaid) {
  const GpuProcesses gpu{.uuid = "GPU-5a0f", .fault = "Not Supported"};
  EXPECT_EQ(EncodeGpuProcesses(gpu), "GPU-5a0f unknown Not Supported");
  EXPECT_EQ(*DecodeGpuProcesses("GPU-5a0f unknown Not Supported"), gpu);
}

TEST(GpuProcessesTest, ANameIsMadeFitForALine) {
  EXPECT_EQ(NameOfProcess("python3.10"), "python3.10");
  EXPECT_EQ(NameOfProcess("a b,c\n\xc3\xa9"), "a?b?c???");
  EXPECT_EQ(NameOfProcess("tmux: server with more"), "tmux:?server?wi");
  EXPECT_EQ(NameOfProcess("-"), "?");
  EXPECT_EQ(NameOfProcess(""), "");
}

TEST(GpuProcessesTest, TheLargestLineIsTaken) {
  GpuProcesses gpu{.uuid = std::string(kMaxGpuWordsBytes, 'G'),
                   .memory_bytes = uint64_t{1} << 50};
  for (uint32_t i = 0; i < kMaxGpuProcesses; ++i) {
    gpu.processes.push_back({.pid = INT32_MAX - 64 + i,
                             .memory_bytes = uint64_t{1} << 50,
                             .busy_percent = 100,
                             .uid = UINT32_MAX,
                             .name = std::string(kMaxProcessNameBytes, 'n')});
  }
  EXPECT_EQ(*DecodeGpuProcesses(EncodeGpuProcesses(gpu)), gpu);
  gpu.processes.push_back({.pid = INT32_MAX});
  EXPECT_FALSE(DecodeGpuProcesses(EncodeGpuProcesses(gpu)).ok());
}

TEST(GpuProcessesTest, OtherLinesAreRefused) {
  EXPECT_FALSE(DecodeGpuProcesses(absl::string_view()).ok());
  const std::string gpu = "GPU-5a0f 100";
  for (const std::string& line :
       {std::string(),
        std::string("GPU-5a0f"),
        std::string(" 100"),
        std::string("GPU-5a0f "),
        std::string("GPU-5a0f 1.5"),
        std::string("GPU-5a0f unknown "),
        std::string("GPU-5a0f unknown"),
        std::string("GPU-5a0f\t100"),
        std::string("GPU-5a0f 0100"),
        std::string("GPU-5a0f 1125899906842625"),
        gpu + " ",
        gpu + "  7,compute,-,-,-,-",
        gpu + " 7,compute,-,-,-",
        gpu + " 7,compute,-,-,-,-,-",
        gpu + " 0,compute,-,-,-,-",
        gpu + " -7,compute,-,-,-,-",
        gpu + " 2147483648,compute,-,-,-,-",
        gpu + " 7,both,-,-,-,-",
        gpu + " 7,compute,x,-,-,-",
        gpu + " 7,compute,-,101,-,-",
        gpu + " 7,compute,-,-,4294967296,-",
        gpu + " 7,compute,-,-,-,",
        gpu + " 7,compute,-,-,-,sixteen-letters!",
        gpu + " 7,compute,-,-,-,a b",
        gpu + " 7,compute,-,-,-,nnnnnnnnnnnnnnnn",
        gpu + " 7,compute,-,-,-,- 7,compute,-,-,-,-",
        gpu + " 8,compute,-,-,-,- 7,compute,-,-,-,-",
        std::string(kMaxGpuWordsBytes + 1, 'G') + " 100",
        absl::StrCat("GPU unknown ", std::string(kMaxGpuWordsBytes + 1, 'x')),
        absl::StrCat(gpu, " ", std::string(kMaxGpuProcessesBytes, '7'))}) {
    EXPECT_EQ(DecodeGpuProcesses(line).status().code(),
              absl::StatusCode::kInvalidArgument)
        << line;
  }
}

}  // namespace
}  // namespace roundhouse::wire
