#include "server/store/disk_reserve.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

class DiskReserveTest : public testing::Test {
 protected:
  DiskReserveTest() : folder_(testing::TempDir() + "/disk_reserve_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~DiskReserveTest() override { fs::remove_all(folder_); }

  uint64_t AllocatedBytes() const {
    struct stat info;
    if (stat((folder_ + "/reserve").c_str(), &info) != 0) return 0;
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }

  const std::string folder_;
};

TEST_F(DiskReserveTest, ItIsMadeGivenUpAndMadeAgain) {
  DiskReserve reserve(folder_);
  EXPECT_FALSE(reserve.held());
  EXPECT_FALSE(reserve.GiveUp());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(reserve.Fill().ok());
    EXPECT_TRUE(reserve.held());
    EXPECT_GE(AllocatedBytes(), kDiskReserveBytes);
    EXPECT_TRUE(reserve.GiveUp());
    EXPECT_FALSE(reserve.held());
    EXPECT_EQ(AllocatedBytes(), 0u);
    EXPECT_FALSE(reserve.GiveUp());
  }
}

TEST_F(DiskReserveTest, TheNextDaemonFindsIt) {
  ASSERT_TRUE(DiskReserve(folder_).Fill().ok());
  DiskReserve next(folder_);
  EXPECT_TRUE(next.held());
  EXPECT_TRUE(next.Fill().ok());
  EXPECT_TRUE(next.GiveUp());
}

TEST_F(DiskReserveTest, AFileWithoutItsBlocksIsNoReserve) {
  std::ofstream(folder_ + "/reserve").close();
  fs::resize_file(folder_ + "/reserve", kDiskReserveBytes);
  DiskReserve reserve(folder_);
  EXPECT_FALSE(reserve.held());
  ASSERT_TRUE(reserve.Fill().ok());
  EXPECT_GE(AllocatedBytes(), kDiskReserveBytes);
}

TEST_F(DiskReserveTest, ALinkIsNotFollowed) {
  std::ofstream(folder_ + "/other") << "mine";
  fs::create_symlink(folder_ + "/other", folder_ + "/reserve");
  DiskReserve reserve(folder_);
  EXPECT_FALSE(reserve.Fill().ok());
  EXPECT_EQ(fs::file_size(folder_ + "/other"), 4u);
}

TEST_F(DiskReserveTest, WithoutAFolderItSaysSo) {
  DiskReserve reserve(folder_ + "/none");
  const absl::Status status = reserve.Fill();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/none"), std::string::npos) << status;
}

}  // namespace
}  // namespace roundhouse
