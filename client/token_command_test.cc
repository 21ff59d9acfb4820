// roundhouse token, and login and logout as far as they come without TLS.
#include <filesystem>
#include <string>

#include "base/token_text.h"
#include "client/testing/client_fixture.h"
#include "client/tls/logins.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace roundhouse::client {
namespace {

v1::Token Laptop() {
  v1::Token token;
  token.set_id("token-0123456789ab");
  token.set_user("anna");
  token.set_name("laptop");
  token.set_scope(v1::MEMBER);
  token.mutable_create_time()->set_seconds(1'700'000'000);
  return token;
}

class TokenCommandTest : public ClientTest {
 protected:
  TokenCommandTest() {
    home_ = testing::TempDir() + "/token_command_test_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(home_);
    variables_["XDG_CONFIG_HOME"] = home_;
  }
  std::string path() const { return home_ + "/roundhouse/logins"; }
  std::string home_;
};

TEST_F(TokenCommandTest, TheSecretAloneGoesToStandardOutput) {
  const std::string text = MakeTokenText();
  v1::CreateTokenRequest asked;
  server_.answers().create_token = [&](const auto& request, auto* response) {
    asked = request;
    *response->mutable_token() = Laptop();
    response->set_text(text);
    return grpc::Status::OK;
  };
  environment_.now = [] { return absl::FromUnixSeconds(1'000); };
  EXPECT_EQ(Run({"token", "add", "laptop", "--scope=read", "--expires=2d"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(out(), text + "\n");
  EXPECT_EQ(err().find(text), std::string::npos);
  EXPECT_NE(err().find("token-0123456789ab"), std::string::npos);
  EXPECT_EQ(asked.name(), "laptop");
  EXPECT_EQ(asked.scope(), v1::VIEWER);
  EXPECT_EQ(asked.expire_time().seconds(), 1'000 + 2 * 86'400);
  EXPECT_EQ(asked.user(), "");
  EXPECT_EQ(Run({"token", "add", "laptop", "--user=anna", "-o", "json"}),
            ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["text"], text);
  EXPECT_EQ(asked.user(), "anna");
  EXPECT_FALSE(asked.has_expire_time());
}

TEST_F(TokenCommandTest, ListShowAndRemove) {
  server_.answers().tokens = [](const auto&, auto* response) {
    *response->add_tokens() = Laptop();
    v1::Token* const dead = response->add_tokens();
    *dead = Laptop();
    dead->set_id("token-ba9876543210");
    dead->mutable_revoke_time()->set_seconds(1'700'100'000);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"token", "list"}), ExitCode::kOk);
  EXPECT_NE(out().find("laptop  anna  submit  never               never"),
            std::string::npos)
      << out();
  EXPECT_NE(out().find("removed 2023-11-16"), std::string::npos) << out();
  EXPECT_EQ(Run({"token", "show", "token-ba9876543210", "-o", "name"}),
            ExitCode::kOk);
  EXPECT_EQ(out(), "token-ba9876543210\n");
  EXPECT_EQ(Run({"token", "show", "other"}), ExitCode::kNotFound);
  std::string removed;
  server_.answers().revoke_token = [&](const auto& request, auto* token) {
    removed = request.user() + "/" + request.token();
    *token = Laptop();
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"token", "remove", "laptop", "--user=anna"}), ExitCode::kOk);
  EXPECT_EQ(removed, "anna/laptop");
}

TEST_F(TokenCommandTest, FlagsThatAreNone) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"token", "add", "a", "--scope=write"},
        {"token", "add", "a", "--expires=0d"},
        {"token", "add", "a", "--expires=5"},
        {"token", "add", "a", "--expires=3651d"},
        {"token", "add", "a", "--expires=-1h"},
        {"token", "add", "a", "--dead"},
        {"token", "list", "--scope=read"},
        {"token", "list", "--user=a", "--all-users"},
        {"token", "add"},
        {"login"},
        {"login", "lab:1", "--fingerprint=x"}}) {
    EXPECT_EQ(Run(words), ExitCode::kUsage) << words.back() << err();
  }
}

TEST_F(TokenCommandTest, WhereNobodyListensALoginSaysSo) {
  EXPECT_EQ(Run({"login", "127.0.0.1:1"}), ExitCode::kUnavailable);
  EXPECT_NE(err().find("no answer from 127.0.0.1:1: "), std::string::npos)
      << err();
  EXPECT_EQ(Run({"login", "lab"}), ExitCode::kUsage);
  EXPECT_FALSE(std::filesystem::exists(home_));
}

TEST_F(TokenCommandTest, LogoutForgetsTheToken) {
  EXPECT_EQ(Run({"logout"}), ExitCode::kNotFound);
  const std::string fingerprint = "SHA256:" + std::string(43, 'A');
  ASSERT_TRUE(WriteLogins(path(), {{"lab:1", fingerprint, MakeTokenText()},
                                   {"lab:2", fingerprint, MakeTokenText()},
                                   {"lab:3", "", MakeTokenText()}})
                  .ok());
  EXPECT_EQ(Run({"logout"}), ExitCode::kOk);
  EXPECT_EQ(out(), "Logged out of lab:1.\n");
  EXPECT_EQ(Run({"logout", "lab:2", "--forget"}), ExitCode::kOk);
  EXPECT_EQ(Run({"logout", "lab:2"}), ExitCode::kNotFound);
  EXPECT_EQ(Run({"logout", "tls:lab:3"}), ExitCode::kOk);
  EXPECT_EQ(*ReadLogins(path()), (Logins{{"lab:1", fingerprint, ""}}));
}

}  // namespace
}  // namespace roundhouse::client
