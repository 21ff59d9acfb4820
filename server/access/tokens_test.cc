#include "server/access/tokens.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "base/manual_clock.h"
#include "base/token_text.h"
#include "gtest/gtest.h"
#include "server/access/accounts.h"
#include "server/spec/spec_error.h"
#include "server/testing/fresh_store.h"

namespace roundhouse {
namespace {

class TokensTest : public testing::Test {
 protected:
  TokensTest() {
    path_ = FreshStorePath();
    Open();
    for (const char* name : {"anna", "bob"}) {
      EXPECT_TRUE(accounts_->SetUser({.name = name}).ok());
    }
  }
  void Open() {
    tokens_.reset();
    accounts_.reset();
    store_.reset();
    store_ = *JobStore::Open({.path = path_});
    accounts_ = *Accounts::Load(store_.get(), clock_);
    tokens_ = *Tokens::Load(store_.get(), clock_);
  }
  NewToken Make(const std::string& user, const std::string& name,
                absl::Time expires = absl::InfiniteFuture()) {
    const auto made = tokens_->Create(user, name, Role::kMember, expires);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.value_or(NewToken());
  }

  std::string path_;
  ManualClock clock_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<Tokens> tokens_;
};

TEST_F(TokensTest, ATokenIsFoundByItsTextAfterARestartToo) {
  const NewToken made = Make("anna", "laptop");
  EXPECT_TRUE(IsTokenText(made.text));
  for (int i = 0; i < 2; ++i) {
    const auto found = tokens_->Find(made.text);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->id, made.record.id);
    EXPECT_EQ(found->user, "anna");
    EXPECT_EQ(found->name, "laptop");
    EXPECT_EQ(found->scope, Role::kMember);
    EXPECT_EQ(found->create_time, made.record.create_time);
    Open();
  }
}

// Neither the store's file nor what lies beside it has the secret.
TEST_F(TokensTest, TheStoreHasNoMoreThanTheHash) {
  const NewToken made = Make("anna", "laptop");
  ASSERT_TRUE(tokens_->Find(made.text).ok());
  tokens_.reset();
  for (const char* end : {"", "-wal"}) {
    std::error_code error;
    if (!std::filesystem::exists(path_ + end, error)) continue;
    std::string content(std::filesystem::file_size(path_ + end), '\0');
    FILE* const file = fopen((path_ + end).c_str(), "rb");
    ASSERT_NE(file, nullptr);
    content.resize(fread(content.data(), 1, content.size(), file));
    fclose(file);
    EXPECT_FALSE(absl::StrContains(content, made.text.substr(3, 20)));
  }
}

TEST_F(TokensTest, OneTextForAllThatDoNotWork) {
  const NewToken revoked = Make("anna", "a");
  const NewToken expired =
      Make("anna", "b", clock_.WallTime() + absl::Hours(1));
  ASSERT_TRUE(tokens_->Find(revoked.text).ok());
  ASSERT_TRUE(tokens_->Revoke(revoked.record.id).ok());
  ASSERT_TRUE(tokens_->Find(expired.text).ok());
  clock_.Advance(absl::Hours(1));
  const absl::Status unknown = tokens_->Find(MakeTokenText()).status();
  EXPECT_TRUE(absl::IsUnauthenticated(unknown));
  EXPECT_EQ(tokens_->Find(revoked.text).status(), unknown);
  EXPECT_EQ(tokens_->Find(expired.text).status(), unknown);
  EXPECT_EQ(tokens_->Find("").status(), unknown);
  EXPECT_EQ(tokens_->Find("rh_x").status(), unknown);
  EXPECT_EQ(tokens_->Working(revoked.record.id).status(), unknown);
  Open();
  EXPECT_EQ(tokens_->Find(revoked.text).status(), unknown);
}

TEST_F(TokensTest, WhatEndsATokenIsAnotherGeneration) {
  const NewToken first = Make("anna", "a");
  Make("anna", "b", clock_.WallTime() + absl::Hours(1));
  const uint64_t before = tokens_->generation();
  EXPECT_EQ(tokens_->generation(), before);
  ASSERT_TRUE(tokens_->Revoke(first.record.id).ok());
  const uint64_t revoked = tokens_->generation();
  EXPECT_NE(revoked, before);
  ASSERT_TRUE(tokens_->Revoke(first.record.id).ok());
  EXPECT_EQ(tokens_->generation(), revoked) << "the same again";
  clock_.Advance(absl::Minutes(59));
  EXPECT_EQ(tokens_->generation(), revoked);
  clock_.Advance(absl::Minutes(1));
  EXPECT_NE(tokens_->generation(), revoked);
  EXPECT_EQ(tokens_->generation(), tokens_->generation());
}

TEST_F(TokensTest, ANameIsOneWorkingTokensOfAUser) {
  const NewToken first = Make("anna", "laptop");
  const auto again = tokens_->Create("anna", "laptop", Role::kViewer);
  EXPECT_EQ(ErrorField(again.status()), "name");
  Make("bob", "laptop");
  ASSERT_TRUE(tokens_->Revoke(first.record.id).ok());
  const NewToken second = Make("anna", "laptop");
  EXPECT_EQ(tokens_->Get("anna", "laptop")->id, second.record.id);
  EXPECT_EQ(tokens_->Get("anna", first.record.id)->id, first.record.id);
  EXPECT_TRUE(absl::IsNotFound(tokens_->Get("bob", first.record.id).status()));
  EXPECT_TRUE(tokens_->Get("", first.record.id).ok());
  EXPECT_EQ(tokens_->List("anna").size(), 2u);
  EXPECT_EQ(tokens_->List("anna")[0].id, second.record.id);
  EXPECT_EQ(tokens_->List().size(), 3u);
}

TEST_F(TokensTest, WhatIsNoToken) {
  EXPECT_EQ(ErrorField(tokens_->Create("anna", "", Role::kViewer).status()),
            "name");
  EXPECT_EQ(ErrorField(tokens_->Create("anna", "a b", Role::kViewer).status()),
            "name");
  EXPECT_EQ(ErrorField(tokens_->Create("anna", "a", Role::kNone).status()),
            "scope");
  for (const absl::Duration from_now : {absl::ZeroDuration(), -absl::Hours(1),
                                        kLongestTokenLife + absl::Hours(1)}) {
    EXPECT_EQ(ErrorField(tokens_
                             ->Create("anna", "a", Role::kViewer,
                                      clock_.WallTime() + from_now)
                             .status()),
              "expire_time");
  }
  EXPECT_TRUE(tokens_->List().empty());
}

TEST_F(TokensTest, OnlySoManyWorkAtATime) {
  for (size_t i = 0; i < kMaxTokensEach; ++i) {
    Make("anna", "t" + std::to_string(i));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(
      tokens_->Create("anna", "more", Role::kViewer).status()));
  Make("bob", "laptop");
  ASSERT_TRUE(tokens_->RevokeAllOf("anna").ok());
  Make("anna", "more");
  // What has not worked for long is forgotten when another one is made.
  clock_.Advance(kDeadTokensKept + absl::Hours(1));
  Make("anna", "last");
  EXPECT_EQ(tokens_->List("anna").size(), 2u);
  Open();
  EXPECT_EQ(tokens_->List("anna").size(), 2u);
}

TEST_F(TokensTest, LastUsesAreWrittenBesideTheCalls) {
  const NewToken made = Make("anna", "laptop");
  EXPECT_FALSE(tokens_->Get("anna", "laptop")->last_use_time.has_value());
  clock_.Advance(absl::Hours(1));
  ASSERT_TRUE(tokens_->Find(made.text).ok());
  EXPECT_EQ(tokens_->Get("anna", "laptop")->last_use_time, clock_.WallTime());
  const auto revision = *store_->Revision();
  ASSERT_TRUE(tokens_->WriteLastUses().ok());
  Open();
  EXPECT_EQ(tokens_->Get("anna", "laptop")->last_use_time,
            absl::FromUnixMicros(absl::ToUnixMicros(clock_.WallTime())));
  EXPECT_EQ(*store_->Revision(), revision);
}

}  // namespace
}  // namespace roundhouse
