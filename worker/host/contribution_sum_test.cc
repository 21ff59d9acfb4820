#include "worker/host/contribution_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/host/test_job.h"

namespace roundhouse::worker {
namespace {

constexpr uint32_t kUnit = 1;

// An operation on five groups, as slots of two, two and one would send them.
wire::HostOp Contributed(TestJob& job, DType dtype) {
  wire::HostOp op;
  op.unit = kUnit;
  op.total_groups = 5;
  op.contribution_dtype = dtype;
  for (const auto& [first, count] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 2}, {2, 2}, {4, 1}}) {
    op.contributions.push_back(
        {first, count, job.RandomValues(dtype, job.unit(kUnit).element_count)});
  }
  return op;
}

std::vector<float> SumOf(TestJob& job, const wire::HostOp& op) {
  const JobView view = *JobView::Create(job.arena(), job.layout_offset());
  auto sum = ContributionSum::Make(job.arena(), view, op, 1);
  EXPECT_TRUE(sum.ok()) << sum.status();
  std::vector<float> all(job.unit(kUnit).element_count);
  for (const Chunk& chunk : view.Chunks(kUnit)) {
    std::copy_n(sum->Sum(0, chunk), chunk.elements,
                all.begin() + static_cast<int64_t>(chunk.unit_element));
  }
  return all;
}

// `values` in an arena buffer for each slice, which ends at these elements.
wire::HostOp Sliced(TestJob& job, const std::vector<float>& values,
                    std::vector<uint64_t> ends) {
  wire::HostOp op;
  op.unit = kUnit;
  op.total_groups = 5;
  ends.push_back(values.size());
  uint64_t begin = 0;
  for (const uint64_t end : ends) {
    const wire::BufferRef buffer = job.Allocate((end - begin) * sizeof(float));
    std::memcpy(job.arena().Bytes(buffer), values.data() + begin, buffer.bytes);
    op.contributions.push_back({0, 5, buffer, begin, end - begin});
    begin = end;
  }
  return op;
}

// Chunks lie in one slice, across two, and across three.
TEST(ContributionSumTest, SlicesAreTheSumThatContributionsMake) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TestJob job({.seed = 5});
    const std::vector<float> whole = SumOf(job, Contributed(job, dtype));
    const uint64_t elements = whole.size();
    for (const std::vector<uint64_t>& ends :
         {std::vector<uint64_t>{elements / 2},
          std::vector<uint64_t>{16, 48, elements - 32, elements - 16},
          std::vector<uint64_t>{}}) {
      EXPECT_EQ(SumOf(job, Sliced(job, whole, ends)), whole);
    }
  }
}

std::string ErrorOf(TestJob& job, const wire::HostOp& op) {
  const JobView view = *JobView::Create(job.arena(), job.layout_offset());
  return std::string(
      ContributionSum::Make(job.arena(), view, op, 1).status().message());
}

TEST(ContributionSumTest, SlicesCoverTheUnitOnceAndAreFp32) {
  TestJob job({.seed = 5});
  const std::vector<float> values(job.unit(kUnit).element_count, 1.0f);
  const wire::HostOp good = Sliced(job, values, {64});

  wire::HostOp gap = good;
  gap.contributions[1].first_element = 80;
  EXPECT_NE(ErrorOf(job, gap).find("is to be of all 5 groups and to begin with "
                                   "element 64"),
            std::string::npos)
      << ErrorOf(job, gap);
  wire::HostOp part = good;
  part.contributions[0].group_count = 4;
  EXPECT_NE(ErrorOf(job, part).find("of groups [0, 4)"), std::string::npos);
  wire::HostOp beyond = good;
  beyond.contributions[1].elements = ~uint64_t{0};
  EXPECT_NE(ErrorOf(job, beyond).find("element 64"), std::string::npos);
  wire::HostOp missing = good;
  missing.contributions.pop_back();
  EXPECT_NE(ErrorOf(job, missing).find("slices cover 64 of "),
            std::string::npos);
  wire::HostOp small = good;
  small.contributions[0].buffer.bytes = 63 * sizeof(float);
  EXPECT_EQ(ErrorOf(job, small),
            "slice from element 0 on: 252 bytes for 64 elements");
  wire::HostOp rounded = good;
  rounded.contribution_dtype = DType::kBF16;
  EXPECT_EQ(ErrorOf(job, rounded), "slices are fp32, not bf16");
  // One that is of the whole unit is no slice.
  wire::HostOp mixed = good;
  mixed.contributions[1].elements = 0;
  EXPECT_NE(ErrorOf(job, mixed), "");
}

}  // namespace
}  // namespace roundhouse::worker
