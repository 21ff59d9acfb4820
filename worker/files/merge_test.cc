#include "worker/files/merge.h"

#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/convert.h"
#include "base/model/input_file.h"
#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

namespace fs = std::filesystem;
using Floats = std::vector<float>;

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

std::string Bytes(const Floats& values, DType dtype) {
  std::string bytes(values.size() * DTypeBytes(dtype), '\0');
  FromF32(dtype, values.data(), bytes.data(), values.size());
  return bytes;
}

Floats Values(const std::string& bytes, DType dtype) {
  Floats values(bytes.size() / DTypeBytes(dtype));
  ToF32(dtype, bytes.data(), values.data(), values.size());
  return values;
}

// A base and an adapter in files with something in front of the matrices.
class MergeTest : public testing::Test {
 protected:
  MergeTest() : folder_(testing::TempDir() + "/merge_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~MergeTest() override { fs::remove_all(folder_); }

  wire::FileMatrix Put(const std::string& name, const Floats& values,
                       DType dtype) {
    const std::string bytes = "in front" + Bytes(values, dtype) + "behind";
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return {roundhouse::InputFile::Open(folder_ + "/" + name)->checked(), 8,
            dtype};
  }

  // All rows of base [rows, columns], A [rank, columns], B [rows, rank].
  wire::MergeRows Command(const Floats& base, DType base_dtype, const Floats& a,
                          const Floats& b, uint64_t rows, double scale,
                          DType output_dtype) {
    wire::MergeRows merge;
    merge.row_count = rows;
    merge.columns = base.size() / rows;
    merge.rank = b.size() / rows;
    merge.scale = scale;
    merge.base = Put("base", base, base_dtype);
    merge.lora_a = Put("a", a, DType::kF32);
    merge.lora_b = Put("b", b, DType::kF32);
    merge.output_dtype = output_dtype;
    std::ofstream(folder_ + "/out", std::ios::binary) << "header..";
    merge.output = roundhouse::InputFile::Open(folder_ + "/out")->checked();
    merge.output_offset = 8;
    return merge;
  }

  std::string Output() const {
    std::ifstream file(folder_ + "/out", std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(bytes.substr(0, 8), "header..");
    return bytes.substr(8);
  }

  void ExpectError(const wire::MergeRows& merge, absl::StatusCode code,
                   const std::string& text) {
    const absl::Status status = DoMerge(merge).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }

  const std::string folder_;
};

// Multiples of 1/8 below 8: every sum below is exact, in any order.
Floats Eighths(uint64_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Floats values;
  for (uint64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(random() % 128) / 8 - 8);
  }
  return values;
}

// In double, which holds them all.
Floats Expected(const Floats& base, const Floats& a, const Floats& b,
                uint64_t rows, double scale) {
  const uint64_t columns = base.size() / rows;
  const uint64_t rank = b.size() / rows;
  Floats merged;
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (uint64_t k = 0; k < rank; ++k) {
        sum += double{b[i * rank + k]} * double{a[k * columns + j]};
      }
      merged.push_back(
          static_cast<float>(double{base[i * columns + j]} + scale * sum));
    }
  }
  return merged;
}

TEST_F(MergeTest, EveryPairOfDTypesIsTheSumRoundedOnce) {
  constexpr uint64_t kRows = 7, kColumns = 13, kRank = 3;
  const Floats base = Eighths(kRows * kColumns, 1);
  const Floats a = Eighths(kRank * kColumns, 2);
  const Floats b = Eighths(kRows * kRank, 3);
  for (DType from : kDTypes) {
    for (DType to : kDTypes) {
      const auto merge = Command(base, from, a, b, kRows, 0.5, to);
      const auto bytes = DoMerge(merge);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(*bytes, kRows * kColumns * DTypeBytes(to));
      EXPECT_EQ(Output(), Bytes(Expected(base, a, b, kRows, 0.5), to))
          << DTypeName(from) << " to " << DTypeName(to);
    }
  }
}

TEST_F(MergeTest, TiesGoToTheEvenNeighbour) {
  const struct {
    DType dtype;
    float spacing;  // of the numbers from 1 to 2
  } formats[] = {{DType::kBF16, 0x1p-7f}, {DType::kF16, 0x1p-10f}};
  for (const auto& [dtype, spacing] : formats) {
    const Floats base = {1, 1 + spacing, 1 + spacing, -1, 1};
    const float half = spacing / 2;
    // B A is (half, half, just below, -half, just above).
    const Floats a = {half, half, half * 0.999f, -half, half * 1.001f};
    ASSERT_TRUE(
        DoMerge(Command(base, DType::kF32, a, {1}, 1, 1.0, dtype)).ok());
    EXPECT_EQ(Values(Output(), dtype),
              (Floats{1, 1 + 2 * spacing, 1 + spacing, -1, 1 + spacing}))
        << DTypeName(dtype);
  }
}

// 256 + (1 + 2^-9) is above the tie of 256 and 258; rounded to bf16 on its own
// first, the delta would be 1 and the tie go to 256.
TEST_F(MergeTest, TheDeltaIsNotRoundedOnItsOwn) {
  const Floats base = {256, 256};
  const Floats a = {1 + 0x1p-9f, 1};
  ASSERT_TRUE(
      DoMerge(Command(base, DType::kBF16, a, {1}, 1, 1.0, DType::kBF16)).ok());
  EXPECT_EQ(Values(Output(), DType::kBF16), (Floats{258, 256}));
}

TEST_F(MergeTest, TheSumOverTheRankRunsInItsOrder) {
  const Floats a = {1e8f, 1.0f, -1e8f};
  ASSERT_TRUE(
      DoMerge(Command({0.5f}, DType::kF32, a, {1, 1, 1}, 1, 1.0, DType::kF32))
          .ok());
  // (1e8 + 1) - 1e8 is 0 in fp32.
  EXPECT_EQ(Values(Output(), DType::kF32), Floats{0.5f});
}

TEST_F(MergeTest, PartsMakeTheSameFileAsTheWhole) {
  constexpr uint64_t kRows = 9, kColumns = 5;
  const auto merge = Command(Eighths(kRows * kColumns, 4), DType::kF32,
                             Eighths(2 * kColumns, 5), Eighths(kRows * 2, 6),
                             kRows, 1.0 / 3, DType::kBF16);
  ASSERT_TRUE(DoMerge(merge).ok());
  const std::string whole = Output();
  std::ofstream(merge.output.path, std::ios::binary) << "header..";
  for (const auto& [first, count] :
       {std::pair<uint64_t, uint64_t>{4, 5}, {0, 4}, {2, 3}}) {
    wire::MergeRows part = merge;
    part.first_row = first;
    part.row_count = count;
    part.output_offset += first * kColumns * 2;
    ASSERT_TRUE(DoMerge(part).ok());
  }
  EXPECT_EQ(Output(), whole);
}

TEST_F(MergeTest, WithoutARankItIsACopy) {
  const Floats base = {1.5f, -2.25f, std::numeric_limits<float>::infinity(),
                       std::nanf("")};
  for (DType dtype : kDTypes) {
    auto merge = Command(base, dtype, {}, {}, 1, 0, dtype);
    merge.lora_a.file.path = "/nowhere";
    ASSERT_TRUE(DoMerge(merge).ok());
    EXPECT_EQ(Output(), Bytes(base, dtype));
  }
}

TEST_F(MergeTest, MatricesWiderThanAPieceOfMemory) {
  constexpr uint64_t kRows = 3, kColumns = 1500, kRank = 4096;
  static_assert(kMergeElements / kRank < kColumns);
  const Floats base = Eighths(kRows * kColumns, 7);
  const Floats a = Eighths(kRank * kColumns, 8);
  const Floats b = Eighths(kRows * kRank, 9);
  ASSERT_TRUE(
      DoMerge(Command(base, DType::kF32, a, b, kRows, 1.0, DType::kF32)).ok());
  EXPECT_EQ(Values(Output(), DType::kF32), Expected(base, a, b, kRows, 1.0));
}

TEST_F(MergeTest, RowsLongerThanAPieceOfMemory) {
  constexpr uint64_t kColumns = 600'000;
  const Floats base = Eighths(2 * kColumns, 10);
  ASSERT_TRUE(
      DoMerge(Command(base, DType::kF32, {}, {}, 2, 0, DType::kBF16)).ok());
  EXPECT_EQ(Output(), Bytes(base, DType::kBF16));
}

TEST_F(MergeTest, AnOverflowIsNamedWithItsPlace) {
  // 65519 still rounds to the largest number of fp16.
  auto merge = Command({1, 65519, 3, 65520}, DType::kF32, {0, 0}, {0, 0}, 2,
                       1.0, DType::kF16);
  ExpectError(merge, absl::StatusCode::kInvalidArgument,
              "row 1, column 1: 65520 is no finite number in fp16");
  merge.output_dtype = DType::kBF16;
  EXPECT_TRUE(DoMerge(merge).ok());
  merge = Command({2, 3}, DType::kF32, {1e30f, 4e7f}, {1, 1e32f}, 2, 1.0,
                  DType::kF32);
  merge.columns = 1;
  merge.rank = 1;
  ExpectError(merge, absl::StatusCode::kInvalidArgument,
              "row 1, column 0: inf");
}

TEST_F(MergeTest, ABrokenAdapterIsNamedAndABrokenBaseKept) {
  const float inf = std::numeric_limits<float>::infinity();
  ExpectError(Command({1, 2}, DType::kF32, {0, std::nanf("")}, {1}, 1, 1.0,
                      DType::kF32),
              absl::StatusCode::kInvalidArgument, "row 0, column 1: nan");
  ASSERT_TRUE(
      DoMerge(Command({1, inf}, DType::kF32, {0, 1}, {1}, 1, 1.0, DType::kF16))
          .ok());
  EXPECT_EQ(Values(Output(), DType::kF16), (Floats{1, inf}));
}

TEST(StaysFiniteTest, TheFirstInfiniteNumberOfEveryDType) {
  EXPECT_TRUE(StaysFinite(std::nextafter(65520.0f, 0.0f), DType::kF16));
  EXPECT_FALSE(StaysFinite(-65520.0f, DType::kF16));
  const float bf16 = 0x1.ffp127f;
  EXPECT_FALSE(std::isinf(BF16ToF32(F32ToBF16(std::nextafter(bf16, 0.0f)))));
  EXPECT_TRUE(StaysFinite(std::nextafter(bf16, 0.0f), DType::kBF16));
  EXPECT_TRUE(std::isinf(BF16ToF32(F32ToBF16(bf16))));
  EXPECT_FALSE(StaysFinite(bf16, DType::kBF16));
  EXPECT_TRUE(StaysFinite(std::numeric_limits<float>::max(), DType::kF32));
  EXPECT_FALSE(
      StaysFinite(std::numeric_limits<float>::infinity(), DType::kF32));
  for (DType dtype : kDTypes) EXPECT_FALSE(StaysFinite(std::nanf(""), dtype));
}

TEST_F(MergeTest, FilesThatAreNotAsSaid) {
  const auto good =
      Command({1, 2, 3, 4}, DType::kF32, {1, 1}, {1, 1}, 2, 1.0, DType::kF32);
  ASSERT_TRUE(DoMerge(good).ok());
  auto bad = good;
  bad.base.file.identity.size_bytes += 1;
  ExpectError(bad, absl::StatusCode::kFailedPrecondition,
              "changed since it was checked: it has 30 bytes, 31 then");
  bad = good;
  bad.lora_a.offset = 1000;
  ExpectError(bad, absl::StatusCode::kInvalidArgument,
              "1 rows of 2 elements at byte 1000 end after its 22 bytes");
  bad = good;
  bad.row_count = 4;
  ExpectError(bad, absl::StatusCode::kInvalidArgument, "4 rows of 2 elements");
  bad = good;
  bad.lora_b.file.path += "x";
  ExpectError(bad, absl::StatusCode::kNotFound, "bx: cannot be opened");
  bad = good;
  bad.output.path += "x";
  ExpectError(bad, absl::StatusCode::kNotFound, "outx: cannot be opened");
  bad = good;
  bad.output.identity.inode += 1;
  ExpectError(bad, absl::StatusCode::kFailedPrecondition,
              "out: changed since it was checked");
  bad = good;
  bad.columns = 0;
  ExpectError(bad, absl::StatusCode::kInvalidArgument, "0 columns");
  bad.columns = uint64_t{1} << 50;
  ExpectError(bad, absl::StatusCode::kInvalidArgument, "columns");
}

TEST_F(MergeTest, AFullDiskIsNamed) {
  auto merge = Command({1, 2}, DType::kF32, {}, {}, 1, 0, DType::kF32);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit less = {.rlim_cur = 8, .rlim_max = RLIM_INFINITY};
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &less), 0);
  ExpectError(merge, absl::StatusCode::kResourceExhausted, "out: write");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

}  // namespace
}  // namespace roundhouse::worker
