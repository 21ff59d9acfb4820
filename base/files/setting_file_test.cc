#include "base/files/setting_file.h"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

class SettingFileTest : public testing::Test {
 protected:
  void Write(const std::string& text, mode_t mode = 0640) {
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  ~SettingFileTest() override { std::remove(path_.c_str()); }
  void ExpectBad(const absl::Status& status, const std::string& what) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "--flag: " + path_ + ": "))
        << status;
    EXPECT_TRUE(absl::StrContains(status.message(), what)) << status;
  }
  std::string path_ =
      testing::TempDir() + "/" +
      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(SettingFileTest, AWholeFileIsReadUpToItsLimit) {
  ExpectBad(ReadSettingFile("flag", path_, 4).status(), "can't be opened");
  Write("a\nb\n", 0644);
  EXPECT_EQ(*ReadSettingFile("flag", path_, 4), "a\nb\n");
  ExpectBad(ReadSettingFile("flag", path_, 3).status(), "longer than 3 bytes");
  path_ = testing::TempDir();
  ExpectBad(ReadSettingFile("flag", path_, 4).status(), "is no file");
}

TEST_F(SettingFileTest, APipeIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  ExpectBad(ReadSecretFile("flag", path_).status(), "is no file");
}

TEST_F(SettingFileTest, ASecretIsOneWordThatOthersCantRead) {
  for (const char* text : {"s3cret", "s3cret\n", " s3cret\r\n"}) {
    Write(text);
    EXPECT_EQ(*ReadSecretFile("flag", path_), "s3cret");
  }
  EXPECT_EQ(*ReadSecretFile("flag", path_, 6), "s3cret");
  ExpectBad(ReadSecretFile("flag", path_, 7).status(), "7 characters or more");
  for (const mode_t mode : {0644, 0660, 0601}) {
    Write("s3cret", mode);
    ExpectBad(ReadSecretFile("flag", path_).status(),
              "others may read or change it");
  }
  for (const char* bad :
       {"", "\n", "s3cret two", "s3cret\nHost: x", "s3cr\x80"}) {
    Write(bad);
    const absl::Status status = ReadSecretFile("flag", path_).status();
    ExpectBad(status, "one word of printable ASCII");
    EXPECT_FALSE(absl::StrContains(status.message(), "s3cr")) << status;
  }
  Write(std::string(kMaxSecretBytes + 1, 'x'));
  ExpectBad(ReadSecretFile("flag", path_).status(), "longer than");
}

}  // namespace
}  // namespace roundhouse
