#include "tests/fakes/slow_commands.h"

#include <utility>
#include <variant>

#include "gtest/gtest.h"

namespace roundhouse::fakes {
namespace {

class SlowCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto ends = wire::Channel::Pair();
    ASSERT_TRUE(ends.ok()) << ends.status();
    daemon_ = std::move(ends->first);
    outer_ = std::move(ends->second);
    auto slow = SlowCommands::Create(*outer_, absl::Milliseconds(5));
    ASSERT_TRUE(slow.ok()) << slow.status();
    slow_ = *std::move(slow);
  }

  std::unique_ptr<wire::Channel> daemon_, outer_;
  std::unique_ptr<SlowCommands> slow_;
};

TEST_F(SlowCommandsTest, EverythingComesThroughInOrder) {
  ASSERT_TRUE(daemon_->Send({1, wire::RunSlot{.slot = 7}}).ok());
  ASSERT_TRUE(daemon_->Send({2, wire::Withdraw{1}}).ok());
  ASSERT_TRUE(daemon_->Send({3, wire::Stop{}}).ok());
  auto message = slow_->channel().Receive();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<wire::RunSlot>(message->body).slot, 7u);
  message = slow_->channel().Receive();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_TRUE(std::holds_alternative<wire::Withdraw>(message->body));
  ASSERT_TRUE(slow_->channel().Send({1, wire::SlotDone{.slot = 7}}).ok());
  message = daemon_->Receive();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<wire::SlotDone>(message->body).slot, 7u);
}

TEST_F(SlowCommandsTest, WhenTheDaemonIsGoneTheWorkerSeesIt) {
  daemon_.reset();
  EXPECT_TRUE(absl::IsUnavailable(slow_->channel().Receive().status()));
}

}  // namespace
}  // namespace roundhouse::fakes
