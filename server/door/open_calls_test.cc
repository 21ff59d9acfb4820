#include "server/door/open_calls.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uid_t kAnn = 40'001;

class OpenCallsTest : public testing::Test {
 protected:
  static Peer Address(int number) {
    return Peer::OfAddress(absl::StrCat("192.0.2.", number));
  }
  // Whether he has another place; it is given back at the end.
  bool Enter(const Peer& peer) {
    const auto number = open_.Enter(peer, nullptr);
    if (number.has_value()) entered_.push_back(*number);
    return number.has_value();
  }
  void TearDown() override {
    for (const uint64_t number : entered_) open_.Leave(number);
  }

  ManualClock clock_;
  OpenCalls open_{{.all = 6, .addresses = 3, .each_user = 2, .each_address = 2},
                  clock_};
  std::vector<uint64_t> entered_;
};

TEST_F(OpenCallsTest, AddressesHaveFewEachAndTogether) {
  EXPECT_TRUE(Enter(Address(1)));
  EXPECT_TRUE(Enter(Address(1)));
  EXPECT_FALSE(Enter(Address(1)));
  EXPECT_TRUE(Enter(Address(2)));
  EXPECT_FALSE(Enter(Address(3))) << "the most of addresses";
  EXPECT_TRUE(Enter(kAnn)) << "users of this machine are not shut out";
  EXPECT_TRUE(Enter(kAnn));
  EXPECT_FALSE(Enter(kAnn));
  open_.Leave(entered_[0]);
  EXPECT_TRUE(Enter(Address(3)));
}

TEST_F(OpenCallsTest, WhatWasOpenForLongGivesWay) {
  ASSERT_TRUE(Enter(kAnn));
  for (const int number : {1, 2, 3}) ASSERT_TRUE(Enter(Address(number)));
  EXPECT_FALSE(Enter(Address(4)));
  clock_.Advance(kOpenCallLifetime);
  EXPECT_TRUE(Enter(Address(4)));
  EXPECT_TRUE(Enter(Address(5)));
  EXPECT_TRUE(Enter(Address(6)));
  EXPECT_FALSE(Enter(Address(7))) << "the old ones are gone";
  EXPECT_TRUE(Enter(kAnn)) << "no address took this user's";
  EXPECT_TRUE(Enter(kAnn)) << "his own oldest gives way";
  EXPECT_FALSE(Enter(kAnn));
}

}  // namespace
}  // namespace roundhouse
