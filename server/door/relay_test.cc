// One connection with both ends in the test's hands.
#include "server/door/relay.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/door/peers.h"

namespace roundhouse {
namespace {

constexpr uid_t kAnn = 40'001;
constexpr uint64_t kConnection = 5;
const absl::Time kNow = absl::FromUnixSeconds(1000);

// What TLS may ask for: a read that needs a socket that takes bytes.
class ReadsByWriting final : public PlainStream {
 public:
  using PlainStream::PlainStream;
  bool reads_by_writing() const override { return true; }
};

class RelayTest : public testing::Test {
 protected:
  void SetUp() override {
    int client[2];
    int server[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, client), 0);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, server), 0);
    client_ = Descriptor(client[0]);
    door_ = Descriptor(client[1]);
    grpc_ = Descriptor(server[1]);
    ASSERT_TRUE(peers_.Enter(kAnn, kNow).ok());
    relay_ = std::make_unique<Relay>(
        &peers_, epoll_.get(), kConnection, kAnn,
        Relay::Ends{.client = std::make_unique<ReadsByWriting>(door_.get()),
                    .server = Descriptor(server[0]),
                    .grpc = grpc_.get()},
        kNow);
  }
  // Two calls, of which the second has to wait for a second to pass.
  void SendMoreThanMayGoOn() {
    std::string sent("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    for (int i = 0; i < 2; ++i) sent += std::string("\0\0\0\1\5\0\0\0\1", 9);
    ASSERT_EQ(send(client_.get(), sent.data(), sent.size(), 0),
              static_cast<ssize_t>(sent.size()));
  }

  Peers peers_{{.user_calls = 1}};
  const Descriptor epoll_{epoll_create1(EPOLL_CLOEXEC)};
  Descriptor client_;
  Descriptor door_;
  Descriptor grpc_;
  std::unique_ptr<Relay> relay_;
};

TEST_F(RelayTest, NobodyIsWokenForAReadThatMayNotBe) {
  struct epoll_event event = {};
  SendMoreThanMayGoOn();
  ASSERT_TRUE(relay_->OnClient(/*hung_up=*/false, kNow));
  ASSERT_TRUE(relay_->waits());
  EXPECT_EQ(epoll_wait(epoll_.get(), &event, 1, 0), 0)
      << "the loop would spin until time has passed";
  ASSERT_TRUE(relay_->OnTime(kNow + absl::Seconds(1)));
  EXPECT_FALSE(relay_->waits());
  EXPECT_EQ(epoll_wait(epoll_.get(), &event, 1, 0), 1);
  EXPECT_EQ(event.data.u64, 2 * kConnection);
}

TEST_F(RelayTest, AStrangerGivesWayWhereOthersNeedHisPlace) {
  relay_.reset();
  ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, door_.get(), nullptr), 0);
  Peers peers({.connections = 4});
  const Peer address = Peer::OfAddress("192.0.2.1");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(peers.Enter(address, kNow).ok());
  int server[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, server), 0);
  const Descriptor other(server[1]);
  Relay stranger(
      &peers, epoll_.get(), kConnection, address,
      Relay::Ends{.client = std::make_unique<PlainStream>(door_.get()),
                  .server = Descriptor(server[0]),
                  .grpc = other.get()},
      kNow);
  SendMoreThanMayGoOn();
  ASSERT_TRUE(stranger.OnClient(/*hung_up=*/false, kNow));
  EXPECT_TRUE(stranger.Behaves(kNow + kStrangerLimit));
  const absl::Time later = kNow + kStrangerLimit + absl::Seconds(1);
  EXPECT_FALSE(stranger.Behaves(later));
  peers.NoteToken(absl::StrCat("fd:", other.get()));
  EXPECT_TRUE(stranger.Behaves(later));
}

// As where the system has no more watches for this user.
TEST_F(RelayTest, AConnectionThatCantBeWatchedEnds) {
  ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, door_.get(), nullptr), 0);
  EXPECT_TRUE(relay_->Behaves(kNow));
  SendMoreThanMayGoOn();
  EXPECT_FALSE(relay_->OnClient(/*hung_up=*/false, kNow));
  EXPECT_FALSE(relay_->Behaves(kNow));
}

TEST_F(RelayTest, AConnectionThatWasNeverWatchedEnds) {
  relay_.reset();
  ASSERT_TRUE(peers_.Enter(kAnn, kNow).ok());
  int server[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, server), 0);
  const Descriptor other(server[1]);
  const Relay unwatched(
      &peers_, /*epoll=*/-1, kConnection, kAnn,
      Relay::Ends{.client = std::make_unique<PlainStream>(door_.get()),
                  .server = Descriptor(server[0]),
                  .grpc = other.get()},
      kNow);
  EXPECT_FALSE(unwatched.Behaves(kNow));
}

}  // namespace
}  // namespace roundhouse
