#include "server/gpu/gpu_choice.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Eight, GPU 3 lost.
wire::GpuReport Eight() {
  wire::GpuReport report;
  for (uint32_t i = 0; i < 8; ++i) {
    wire::Gpu gpu;
    gpu.index = i;
    gpu.uuid = absl::StrCat("GPU-", i);
    gpu.name = "NVIDIA Test";
    gpu.memory_total_bytes = 24 * kGiB;
    gpu.memory_free_bytes = (23 - i) * kGiB;
    report.gpus.push_back(gpu);
  }
  report.gpus[3] = wire::Gpu();
  report.gpus[3].index = 3;
  report.gpus[3].fault = "GPU is lost";
  return report;
}

using Indices = std::vector<uint32_t>;

Indices IndicesOf(const absl::StatusOr<GpuChoice>& choice) {
  EXPECT_TRUE(choice.ok()) << choice.status();
  Indices indices;
  if (!choice.ok()) return indices;
  for (const wire::Gpu& gpu : choice->gpus) indices.push_back(gpu.index);
  return indices;
}

void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                   const std::string& what) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), what)) << status;
}

TEST(GpuChoiceTest, GpusReachEachOtherWhereEachSaysSoOfAllOthers) {
  std::vector<wire::Gpu> gpus = {Eight().gpus[0], Eight().gpus[2]};
  EXPECT_FALSE(ReachEachOther(gpus));  // the driver does not say
  gpus[0].peers = 0b100;
  EXPECT_FALSE(ReachEachOther(gpus));
  gpus[1].peers = 0b001;
  EXPECT_TRUE(ReachEachOther(gpus));
  gpus[1].peers = 0b010;  // some other one
  EXPECT_FALSE(ReachEachOther(gpus));
  gpus[1] = gpus[0];  // twice
  EXPECT_FALSE(ReachEachOther(gpus));
  EXPECT_FALSE(OneDeviceEach(gpus));
  EXPECT_FALSE(ReachEachOther({gpus[0]}));
  EXPECT_FALSE(ReachEachOther({}));
}

TEST(GpuRequestTest, AllOrAList) {
  EXPECT_TRUE(ParseGpuRequest("cuda")->all);
  const auto some = ParseGpuRequest("cuda:0,2-5,1");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_FALSE(some->all);
  EXPECT_EQ(some->indices, (Indices{0, 2, 3, 4, 5, 1}));
  EXPECT_EQ(ParseGpuRequest("cuda:7")->indices, Indices{7});
  EXPECT_EQ(ParseGpuRequest("cuda:0-61")->indices.size(), 62u);
}

TEST(GpuRequestTest, OtherFormsAreRefused) {
  for (const char* devices :
       {"cuda:", "cuda:,", "cuda:1,", "cuda:x", "cuda:-1", "cuda:1-",
        "cuda:1-2-3", "cuda:5-2", "cuda:64", "cuda:4294967296", "cuda0",
        "cudax", "cuda: 1-1-", "CUDA", ""}) {
    ExpectRefused(ParseGpuRequest(devices).status(),
                  absl::StatusCode::kInvalidArgument,
                  "--devices: want cuda, or cuda: with GPUs by number");
  }
  ExpectRefused(ParseGpuRequest("cuda:0-62").status(),
                absl::StatusCode::kInvalidArgument,
                "--devices: 63 GPUs; the limit is 62");
}

TEST(GpuChoiceTest, AllAreThoseThatCanBeUsed) {
  const auto choice = ChooseGpus({.all = true}, Eight());
  EXPECT_EQ(IndicesOf(choice), (Indices{0, 1, 2, 4, 5, 6, 7}));
  EXPECT_EQ(choice->left_out, std::vector<std::string>{"GPU 3: GPU is lost"});
}

TEST(GpuChoiceTest, NoneToUseIsAnError) {
  ExpectRefused(ChooseGpus({.all = true}, {}).status(),
                absl::StatusCode::kFailedPrecondition,
                "--devices=cuda: the driver knows no GPU");
  wire::GpuReport report = Eight();
  report.gpus = {report.gpus[3]};
  ExpectRefused(ChooseGpus({.all = true}, report).status(),
                absl::StatusCode::kFailedPrecondition,
                "--devices=cuda: no GPU can be used: GPU 3: GPU is lost");
}

TEST(GpuChoiceTest, ListedOnesComeInTheirOrder) {
  const auto choice = ChooseGpus({.indices = {6, 0}}, Eight());
  EXPECT_EQ(IndicesOf(choice), (Indices{6, 0}));
  EXPECT_TRUE(choice->left_out.empty());
}

TEST(GpuChoiceTest, AListedOneMustBeThereAndWell) {
  ExpectRefused(ChooseGpus({.indices = {0, 8}}, Eight()).status(),
                absl::StatusCode::kInvalidArgument,
                "--devices: there is no GPU 8; the driver knows 8");
  ExpectRefused(ChooseGpus({.indices = {0, 3}}, Eight()).status(),
                absl::StatusCode::kFailedPrecondition,
                "--devices: GPU 3: GPU is lost");
}

TEST(GpuChoiceTest, MoreThanThereMayBeAreRefused) {
  wire::GpuReport report = Eight();
  for (uint32_t i = 8; i < wire::kMaxGpus; ++i) {
    report.gpus.push_back(report.gpus[0]);
    report.gpus.back().index = i;
  }
  ExpectRefused(ChooseGpus({.all = true}, report).status(),
                absl::StatusCode::kInvalidArgument,
                "--devices: 63 GPUs; the limit is 62");
}

TEST(GpuMemoryTest, TheFullestGpuIsTheLimit) {
  std::vector<wire::Gpu> gpus = Eight().gpus;
  gpus.erase(gpus.begin() + 3);
  EXPECT_EQ(*GpuMemoryLimit(gpus, 0), 14 * kGiB);
  EXPECT_EQ(*GpuMemoryLimit(gpus, 24 * kGiB), 24 * kGiB);
  ExpectRefused(GpuMemoryLimit(gpus, 24 * kGiB + 1).status(),
                absl::StatusCode::kInvalidArgument,
                "--device-memory: 25769803777 bytes (24.0 GiB); GPU 0 has "
                "25769803776 bytes");
  gpus[2].memory_free_bytes = kGiB;
  ExpectRefused(GpuMemoryLimit(gpus, 0).status(),
                absl::StatusCode::kInvalidArgument,
                "--device-memory: GPU 2 has 1073741824 bytes (1.0 GiB) free");
  gpus[2].memory_free_bytes.reset();
  ExpectRefused(GpuMemoryLimit(gpus, 0).status(),
                absl::StatusCode::kInvalidArgument, "say how much to use");
  gpus[2].memory_total_bytes.reset();
  EXPECT_EQ(*GpuMemoryLimit(gpus, kGiB), kGiB);
}

TEST(GpuMemoryTest, DevicesOfOneGpuShareItsMemory) {
  const auto choice = ChooseGpus(*ParseGpuRequest("cuda:0,1,0,0"), Eight());
  ASSERT_EQ(choice.status(), absl::OkStatus());
  const std::vector<wire::Gpu>& gpus = choice->gpus;
  ASSERT_EQ(gpus.size(), 4u);
  // 23 GiB are free, each of three workers has a reserve of 2.
  EXPECT_EQ(*GpuMemoryLimit(gpus, 0), 23 * kGiB / 3 - 2 * kGiB);
  EXPECT_EQ(*GpuMemoryLimit(gpus, 8 * kGiB), 8 * kGiB);
  ExpectRefused(GpuMemoryLimit(gpus, 8 * kGiB + 1).status(),
                absl::StatusCode::kInvalidArgument,
                "--device-memory: 8589934593 bytes (8.0 GiB) for each of 3 "
                "devices; GPU 0 has 25769803776 bytes (24.0 GiB)");
}

}  // namespace
}  // namespace roundhouse
