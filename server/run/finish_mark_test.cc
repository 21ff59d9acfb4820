#include "server/run/finish_mark.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/files/file_fault.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(FinishMarkTest, NoBitOfItFlipsUnnoticed) {
  const std::string path = testing::TempDir() + "/finish_mark";
  std::filesystem::remove(path);
  EXPECT_EQ(*ReadFinishMark(path), std::nullopt);
  ASSERT_TRUE(WriteFinishMark(path, 46).ok());
  EXPECT_EQ(*ReadFinishMark(path), 46);
  std::ifstream file(path, std::ios::binary);
  const std::string good(std::istreambuf_iterator<char>(file), {});
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    std::ofstream(path, std::ios::binary) << bad;
    EXPECT_TRUE(absl::IsDataLoss(ReadFinishMark(path).status())) << at;
  }
}

TEST(FinishMarkTest, TheBareNumberOfEarlierDaemonsIsRead) {
  const std::string path = testing::TempDir() + "/finish_mark";
  std::ofstream(path) << "17\n";
  EXPECT_EQ(*ReadFinishMark(path), 17);
  for (const char* bad : {"", "x", "-1\n", "0\n", "17 18"}) {
    std::ofstream(path) << bad;
    EXPECT_TRUE(absl::IsDataLoss(ReadFinishMark(path).status())) << bad;
  }
}

TEST(FinishMarkTest, AFullDiskIsTold) {
  const std::string path = testing::TempDir() + "/finish_mark";
  ASSERT_TRUE(WriteFinishMark(path, 3).ok());
  ASSERT_TRUE(ArmFileFaults("job.finish_mark:ENOSPC").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(WriteFinishMark(path, 4)));
  ASSERT_TRUE(ArmFileFaults("").ok());
  EXPECT_EQ(*ReadFinishMark(path), 3);
}

}  // namespace
}  // namespace roundhouse
