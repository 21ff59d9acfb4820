#include "server/hub/hub_token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

class HubTokenTest : public testing::Test {
 protected:
  ~HubTokenTest() override { unlink(path_.c_str()); }
  absl::StatusOr<std::string> Read(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    return ReadHubToken(path_);
  }
  void ExpectRefused(const std::string& text, mode_t mode,
                     const std::string& part) {
    const auto token = Read(text, mode);
    ASSERT_TRUE(absl::IsInvalidArgument(token.status())) << text;
    const std::string message(token.status().message());
    EXPECT_EQ(message.find("--hub-token-file: " + path_), 0u) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find("s3cret"), std::string::npos) << message;
  }

  const std::string path_ = testing::TempDir() + "/hub-token";
};

TEST_F(HubTokenTest, OneWordOfAClosedFile) {
  EXPECT_EQ(*Read("s3cret\n", 0600), "s3cret");
  EXPECT_EQ(*Read("  s3cret", 0640), "s3cret");
}

TEST_F(HubTokenTest, AFileThatOthersReadIsRefused) {
  ExpectRefused("s3cret", 0644, "others may read or change it");
  ExpectRefused("s3cret", 0660, "others may read or change it");
}

TEST_F(HubTokenTest, WhatIsNoTokenIsRefused) {
  ExpectRefused("", 0600, "one word of printable ASCII");
  ExpectRefused("s3cret two", 0600, "one word of printable ASCII");
  ExpectRefused("s3cret\r\nHost: x", 0600, "one word of printable ASCII");
  ExpectRefused(std::string(5000, 'x'), 0600, "4096 bytes at most");
}

TEST_F(HubTokenTest, WhatCannotBeReadIsRefused) {
  EXPECT_NE(ReadHubToken(path_).status().message().find("can't be opened"),
            std::string::npos);
  EXPECT_NE(ReadHubToken("/dev").status().message().find("is no file"),
            std::string::npos);
}

}  // namespace
}  // namespace roundhouse
