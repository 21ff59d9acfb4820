#include "worker/outbox.h"

#include <memory>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

class OutboxTest : public testing::Test {
 protected:
  std::pair<std::unique_ptr<wire::Channel>, std::unique_ptr<wire::Channel>>
      ends_ = *wire::Channel::Pair();
  Outbox outbox_{*ends_.first};
};

TEST_F(OutboxTest, ThreadsSendWholeMessages) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (uint64_t i = 0; i < 50; ++i) {
        outbox_.Send(t, wire::Withdrawn{i});
      }
    });
  }
  std::vector<uint64_t> next(4, 0);
  for (int i = 0; i < 200; ++i) {
    const auto message = ends_.second->Receive();
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(std::get<wire::Withdrawn>(message->body).slot,
              next[message->attempt]++);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(OutboxTest, AClosedChannelIsNoError) {
  ends_.second.reset();
  outbox_.Send(1, wire::Heartbeat{1});
}

TEST_F(OutboxTest, ALoopThatIsStuckFallsSilent) {
  Pulse stuck;
  stuck.Beat();
  {
    const Heartbeats heartbeats(outbox_, {&stuck}, nullptr,
                                absl::Milliseconds(1));
    // One heartbeat for the one beat.
    EXPECT_TRUE(
        std::holds_alternative<wire::Heartbeat>(ends_.second->Receive()->body));
    // The thread looks again at least while another one beats twice.
    auto others = *wire::Channel::Pair();
    Outbox elsewhere(*others.first);
    const Heartbeats clock(elsewhere, {}, nullptr, absl::Milliseconds(2));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(others.second->Receive().ok());
  }
  EXPECT_FALSE(ends_.second->TryReceive()->has_value());
}

TEST_F(OutboxTest, HeartbeatsSayWhatIsPinnedAtTheTime) {
  uint64_t pinned = 0;  // of the heartbeats' thread
  const Heartbeats heartbeats(
      outbox_, {}, [&] { return pinned += 4096; }, absl::Milliseconds(1));
  for (uint64_t beat = 1; beat <= 3; ++beat) {
    const auto message = ends_.second->Receive();
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(std::get<wire::Heartbeat>(message->body).pinned_bytes,
              beat * 4096);
  }
}

}  // namespace
}  // namespace roundhouse::worker
