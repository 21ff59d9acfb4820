#include "base/files/setting_file.h"

#include <sys/stat.h>

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

TEST_F(SettingFileTest, ASecretIsOneLineThatOthersCantRead) {
  const std::string secret(kMinSecretBytes, 'x');
  Write(secret + "\n");
  EXPECT_EQ(*ReadSecretFile("flag", path_), secret);
  Write(secret);
  EXPECT_EQ(*ReadSecretFile("flag", path_), secret);
  Write(secret, 0644);
  ExpectBad(ReadSecretFile("flag", path_).status(), "others may use it");
  for (const std::string& bad :
       {std::string(), secret.substr(1), secret + "\n" + secret, secret + " x",
        secret + "\x80"}) {
    Write(bad);
    ExpectBad(ReadSecretFile("flag", path_).status(), "is not one line of");
  }
  Write(std::string(kMaxSecretBytes + 1, 'x'));
  ExpectBad(ReadSecretFile("flag", path_).status(), "longer than");
}

}  // namespace
}  // namespace roundhouse
