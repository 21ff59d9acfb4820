#include "client/tls/logins.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/token_text.h"
#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

const std::string& Fingerprint() {
  static const auto& text = *new std::string("SHA256:" + std::string(43, 'A'));
  return text;
}

class LoginsTest : public testing::Test {
 protected:
  LoginsTest() {
    folder_ = testing::TempDir() + "/logins_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    path_ = folder_ + "/roundhouse/logins";
  }
  std::string folder_;
  std::string path_;
};

TEST_F(LoginsTest, WhatWasWrittenIsRead) {
  EXPECT_TRUE(ReadLogins(path_)->empty());
  Logins logins;
  const Login first{"lab:7443", Fingerprint(), MakeTokenText()};
  const Login second{"[::1]:7443", "", MakeTokenText()};
  PutLogin(first, &logins);
  PutLogin(second, &logins);
  ASSERT_TRUE(WriteLogins(path_, logins).ok());
  const auto read = ReadLogins(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, logins);
  EXPECT_EQ(CurrentLogin(*read)->server, "[::1]:7443") << "the last login";
  EXPECT_EQ(*LoginOf(*read, "lab:7443"), first);
  EXPECT_EQ(LoginOf(*read, "lab:7444"), nullptr);
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  ASSERT_EQ(stat((folder_ + "/roundhouse").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  EXPECT_EQ(std::distance(
                std::filesystem::directory_iterator(folder_ + "/roundhouse"),
                std::filesystem::directory_iterator()),
            1)
      << "nothing else is left";
}

TEST_F(LoginsTest, AnotherLoginReplacesTheOneOfItsServer) {
  Logins logins;
  PutLogin({"lab:1", Fingerprint(), MakeTokenText()}, &logins);
  PutLogin({"lab:2", "", MakeTokenText()}, &logins);
  const Login again{"lab:1", "", MakeTokenText()};
  PutLogin(again, &logins);
  ASSERT_EQ(logins.size(), 2u);
  EXPECT_EQ(*CurrentLogin(logins), again);
  // Whoever logs out is sent to the one before.
  logins[0].token = "";
  EXPECT_EQ(CurrentLogin(logins)->server, "lab:2");
}

TEST_F(LoginsTest, AFileThatOthersMayReadIsRefused) {
  ASSERT_TRUE(WriteLogins(path_, {{"lab:1", "", MakeTokenText()}}).ok());
  for (const mode_t mode : {0640, 0604, 0620}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    const auto read = ReadLogins(path_);
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << mode;
    EXPECT_NE(std::string(read.status().message()).find("chmod 600 " + path_),
              std::string::npos);
  }
}

TEST_F(LoginsTest, WhatIsWrongIsToldWithoutTheToken) {
  const std::string token = MakeTokenText();
  std::string wrong = token;
  wrong[10] = wrong[10] == 'x' ? 'y' : 'x';
  for (const std::string& line :
       {"lab:1 " + Fingerprint() + " " + wrong, "lab:1 md5:1 " + token,
        "lab " + Fingerprint() + " " + token, "lab:1 " + token,
        "lab:1 ca " + token + " x",
        "lab:1 ca " + token + "\nlab:1 ca " + token}) {
    const auto read = ParseLogins("FILE", "# x\n" + line + "\n");
    ASSERT_TRUE(absl::IsInvalidArgument(read.status())) << line;
    const std::string message(read.status().message());
    EXPECT_EQ(message.rfind("FILE:", 0), 0u) << message;
    EXPECT_EQ(message.find(token.substr(3, 12)), std::string::npos) << message;
    EXPECT_EQ(message.find(wrong.substr(12)), std::string::npos) << message;
  }
}

TEST(FingerprintTest, WhatIsOne) {
  EXPECT_TRUE(IsFingerprint(Fingerprint()));
  for (const std::string& bad :
       {std::string(), std::string("SHA256:"), Fingerprint() + "A",
        Fingerprint() + "=", "sha256:" + std::string(43, 'A'),
        "SHA256:" + std::string(43, '!'), std::string(43, 'A')}) {
    EXPECT_FALSE(IsFingerprint(bad)) << bad;
  }
}

}  // namespace
}  // namespace roundhouse::client
