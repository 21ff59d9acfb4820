#include "server/door/call_queue.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uid_t kAnn = 40'001;
constexpr uid_t kBob = 40'002;

TEST(CallQueueTest, UsersTakeTurns) {
  CallQueue queue({.threads = 1});
  absl::Notification begun, go_on;
  ASSERT_TRUE(queue
                  .Run(kAnn,
                       [&] {
                         begun.Notify();
                         go_on.WaitForNotification();
                       })
                  .ok());
  begun.WaitForNotification();
  std::string order;  // of the one thread
  for (const char c : {'1', '2', '3', '4'}) {
    ASSERT_TRUE(queue.Run(kAnn, [&order, c] { order += c; }).ok());
  }
  for (const char c : {'a', 'b'}) {
    ASSERT_TRUE(queue.Run(kBob, [&order, c] { order += c; }).ok());
  }
  go_on.Notify();
  queue.Stop();
  EXPECT_EQ(order, "1a2b34");
}

TEST(CallQueueTest, OnlySoManyWaitOfAUserAndInAll) {
  CallQueue queue({.threads = 1, .waiting = 5, .waiting_each = 3});
  absl::Notification begun, go_on;
  ASSERT_TRUE(queue
                  .Run(kAnn,
                       [&] {
                         begun.Notify();
                         go_on.WaitForNotification();
                       })
                  .ok());
  begun.WaitForNotification();
  int ran = 0;
  const auto run = [&](uid_t uid) { return queue.Run(uid, [&] { ++ran; }); };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(run(kAnn).ok());
  const absl::Status refused = run(kAnn);
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_TRUE(
      absl::StartsWith(refused.message(), "you have 3 such calls waiting"));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(run(kBob).ok());
  EXPECT_EQ(run(kBob).message(), "the server is busy; try again");
  go_on.Notify();
  queue.Stop();
  EXPECT_EQ(ran, 5) << "what was taken is done";
  EXPECT_TRUE(absl::IsUnavailable(run(kBob)));
}

// However many tokens and addresses there are, this machine's users get in.
TEST(CallQueueTest, TheNetworkLeavesAPartToThisMachinesUsers) {
  CallQueue queue({.threads = 1, .waiting = 4, .waiting_each = 2});
  absl::Notification begun, go_on;
  ASSERT_TRUE(queue
                  .Run(kAnn,
                       [&] {
                         begun.Notify();
                         go_on.WaitForNotification();
                       })
                  .ok());
  begun.WaitForNotification();
  std::string order;
  const auto run = [&](const Peer& peer, char c) {
    return queue.Run(peer, [&order, c] { order += c; });
  };
  EXPECT_TRUE(run(Peer::OfHolder("user:mary"), 'm').ok());
  EXPECT_TRUE(run(Peer::OfHolder("user:nora"), 'n').ok());
  EXPECT_TRUE(run(Peer::OfHolder("user:mary"), 'M').ok());
  EXPECT_TRUE(absl::IsUnavailable(run(Peer::OfHolder("user:otto"), 'o')));
  EXPECT_TRUE(run(kAnn, 'a').ok());
  go_on.Notify();
  queue.Stop();
  EXPECT_EQ(order, "mnaM");
}

}  // namespace
}  // namespace roundhouse
