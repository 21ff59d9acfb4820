#include "server/door/peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uid_t kAnn = 40'001;
constexpr uid_t kBob = 40'002;
const absl::Time kNow = absl::FromUnixSeconds(1000);

TEST(PeersTest, AUserHasAShareOfConnectionsAndAllTogetherALimit) {
  Peers peers(
      {.connections = 7, .connections_each = 3, .connections_admin = 5});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(peers.Enter(kAnn, kNow).ok());
  const absl::Status refused = peers.Enter(kAnn, kNow);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "user 40001 has 3 connections open, the most of a user");
  EXPECT_TRUE(peers.Enter(kBob, kNow).ok()) << "others are not locked out";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(peers.Enter(geteuid(), kNow).ok());
  EXPECT_EQ(peers.Enter(geteuid(), kNow).message(),
            "7 connections are open, the most in all");
  peers.Leave(kAnn);
  EXPECT_TRUE(peers.Enter(kAnn, kNow).ok());
  EXPECT_EQ(peers.connections(), 7);
}

TEST(PeersTest, AThousandClientsHaveRoomOnTheMachineOrOverTheNetwork) {
  constexpr int kClients = 1000;
  const PeerLimits limits;
  Peers local(limits);
  Peers network(limits);
  for (int i = 0; i < kClients; ++i) {
    const auto user = static_cast<uid_t>(70'000 + i / limits.connections_each);
    EXPECT_TRUE(local.Enter(user, kNow).ok()) << i;
    const Peer host = Peer::OfAddress(
        absl::StrCat("192.0.2.", 1 + i / limits.connections_address));
    EXPECT_TRUE(network.Enter(host, kNow).ok()) << i;
  }
}

TEST(PeersTest, RootAndTheDaemonsUserHaveMore) {
  Peers peers({.connections_each = 1, .connections_admin = 2});
  for (const uid_t admin : {uid_t{0}, geteuid()}) {
    while (peers.Enter(admin, kNow).ok()) {
    }
  }
  EXPECT_EQ(peers.connections(), geteuid() == 0 ? 2 : 4);
}

TEST(PeersTest, ACallIsWhoeversConnectionItCameOver) {
  Peers peers({});
  peers.Note(7, kAnn, 1);
  peers.Note(8, kBob, 2);
  EXPECT_EQ(*peers.PeerOf("fd:7"), kAnn);
  EXPECT_EQ(*peers.PeerOf("fd:8"), kBob);
  for (const char* unknown : {"fd:9", "fd:", "fd:7x", "", "unix:", "ipv4:7"}) {
    EXPECT_TRUE(absl::IsUnauthenticated(peers.PeerOf(unknown).status()))
        << unknown;
  }
  // The descriptor goes to another connection before the first one's end was
  // noticed.
  peers.Note(7, kBob, 3);
  peers.Forget(7, 1);
  EXPECT_EQ(*peers.PeerOf("fd:7"), kBob);
  peers.Forget(7, 3);
  EXPECT_FALSE(peers.PeerOf("fd:7").ok());
  EXPECT_EQ(PrincipalOf(kAnn), "uid:40001");
}

TEST(PeersTest, AnAddressHasSharesOfItsOwn) {
  Peers peers({.connections_each = 1,
               .connections_address = 2,
               .user_unfinished_bytes = 10,
               .address_unfinished_bytes = 20,
               .address_handshakes = 3});
  const Peer lab = Peer::OfAddress("192.0.2.7");
  ASSERT_TRUE(peers.Enter(lab, kNow).ok());
  ASSERT_TRUE(peers.Enter(lab, kNow).ok());
  EXPECT_EQ(peers.Enter(lab, kNow).message(),
            "address 192.0.2.7 has 2 connections open, the most of an address");
  EXPECT_TRUE(peers.Enter(Peer::OfAddress("192.0.2.8"), kNow).ok());
  EXPECT_TRUE(peers.AddUnfinished(lab, 20));
  EXPECT_FALSE(peers.AddUnfinished(lab, 1));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(peers.MayBeginHandshake(lab, kNow));
  EXPECT_FALSE(peers.MayBeginHandshake(lab, kNow));
  EXPECT_TRUE(peers.MayBeginHandshake(lab, kNow + absl::Seconds(1)));
}

// However many addresses there are, with tokens or without.
TEST(PeersTest, TheNetworkLeavesPlacesToThisMachineAndAllLeaveSomeToRoot) {
  Peers peers(
      {.connections = 32, .connections_each = 6, .connections_address = 4});
  int let_in = 0;
  absl::Status refused;
  for (int i = 0; i < 40; ++i) {
    const Peer address = Peer::OfAddress(absl::StrCat("192.0.2.", i));
    const absl::Status entered = peers.Enter(address, kNow);
    entered.ok() ? void(++let_in) : refused.Update(entered);
  }
  EXPECT_EQ(let_in, 24);
  EXPECT_EQ(refused.message(),
            "24 connections are open over the network, the most of it");
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(peers.Enter(kAnn, kNow).ok());
  EXPECT_EQ(peers.Enter(kBob, kNow).message(),
            "30 connections are open, the most in all");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(peers.Enter(uid_t{0}, kNow).ok());
  EXPECT_FALSE(peers.Enter(uid_t{0}, kNow).ok());
  peers.Leave(Peer::OfAddress("192.0.2.0"));
  EXPECT_TRUE(peers.Enter(uid_t{0}, kNow).ok());
}

TEST(PeersTest, WhereAddressesAreManyThoseWithoutATokenGiveWay) {
  Peers peers({.connections = 8});
  const Peer address = Peer::OfAddress("192.0.2.1");
  for (uint64_t i = 1; i <= 4; ++i) {
    EXPECT_FALSE(peers.GivesWay(1, 1)) << "there is room";
    ASSERT_TRUE(peers.Enter(address, kNow).ok());
    peers.Note(static_cast<int>(i), address, i);
  }
  EXPECT_TRUE(peers.GivesWay(1, 1));
  EXPECT_FALSE(peers.GivesWay(1, 2)) << "another connection had the descriptor";
  peers.NoteToken("fd:1");
  EXPECT_FALSE(peers.GivesWay(1, 1));
  peers.Note(5, kAnn, 5);
  EXPECT_FALSE(peers.GivesWay(5, 5));
  peers.Leave(address);
  EXPECT_FALSE(peers.GivesWay(2, 2)) << "there is room again";
}

TEST(PeersTest, AddressesTogetherHaveALimitOfBytesThatAreNotWhole) {
  Peers peers({.user_unfinished_bytes = 10,
               .address_unfinished_bytes = 20,
               .network_unfinished_bytes = 30});
  const Peer one = Peer::OfAddress("192.0.2.1");
  const Peer two = Peer::OfAddress("192.0.2.2");
  for (const Peer& peer : {one, two, Peer(kAnn)}) {
    ASSERT_TRUE(peers.Enter(peer, kNow).ok());
  }
  EXPECT_TRUE(peers.AddUnfinished(one, 20));
  EXPECT_FALSE(peers.AddUnfinished(two, 11));
  EXPECT_TRUE(peers.AddUnfinished(two, 10));
  EXPECT_TRUE(peers.AddUnfinished(kAnn, 10)) << "he came over the socket";
  peers.TakeBackUnfinished(one, 20);
  EXPECT_TRUE(peers.AddUnfinished(two, 10));
}

TEST(PeersTest, HandshakesHaveARateOfAllAddresses) {
  Peers peers({.address_handshakes = 2, .handshakes = 3});
  int begun = 0;
  for (int i = 0; i < 4; ++i) {
    const Peer address = Peer::OfAddress(absl::StrCat("192.0.2.", i));
    ASSERT_TRUE(peers.Enter(address, kNow).ok());
    for (int k = 0; k < 3; ++k) begun += peers.MayBeginHandshake(address, kNow);
  }
  EXPECT_EQ(begun, 3);
  EXPECT_TRUE(peers.MayBeginHandshake(Peer::OfAddress("192.0.2.3"),
                                      kNow + absl::Seconds(1)));
}

// However many come and go meanwhile.
TEST(PeersTest, ComingBackGivesNoNewShareAndThoseWithAWholeOneAreForgotten) {
  Peers peers({.user_calls = 1});
  const auto come_and_go = [&](absl::Time now) {
    for (size_t i = 0; i <= kMaxSharesKept; ++i) {
      const Peer address = Peer::OfAddress(absl::StrCat("net ", i));
      ASSERT_TRUE(peers.Enter(address, now).ok());
      EXPECT_TRUE(peers.MayBeginCall(address, now));
      peers.Leave(address);
    }
  };
  come_and_go(kNow);
  ASSERT_TRUE(peers.Enter(kAnn, kNow).ok());
  EXPECT_TRUE(peers.MayBeginCall(kAnn, kNow));
  peers.Leave(kAnn);
  ASSERT_TRUE(peers.Enter(kAnn, kNow).ok());
  EXPECT_FALSE(peers.MayBeginCall(kAnn, kNow));
  EXPECT_GT(peers.shares(), kMaxSharesKept);
  const absl::Time later = kNow + absl::Seconds(2);
  ASSERT_TRUE(peers.Enter(kBob, later).ok());
  EXPECT_EQ(peers.shares(), 2u);
}

// What one host has is one peer, however it is written.
TEST(PeerTest, TheAddressOfAHost) {
  const auto of = [](const char* text) {
    struct sockaddr_storage out = {};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
      memcpy(&out, &v4, sizeof(v4));
    } else {
      EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1) << text;
      memcpy(&out, &v6, sizeof(v6));
    }
    return Peer::OfAddress(out).address;
  };
  EXPECT_EQ(of("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(of("::ffff:192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(of("::1"), "::1");
  EXPECT_EQ(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(of("2001:db8:1:2::9"), "2001:db8:1:2::/64");
  EXPECT_NE(of("2001:db8:1:3::9"), "2001:db8:1:2::/64");
  EXPECT_NE(Peer(1000), Peer::OfAddress("1000"));
  EXPECT_EQ(Peer(1000).Text(), "user 1000");
}

TEST(PeersTest, CallsOfAUserHaveARate) {
  Peers peers({.user_calls = 10});
  EXPECT_FALSE(peers.MayBeginCall(kAnn, kNow)) << "nobody is connected";
  ASSERT_TRUE(peers.Enter(kAnn, kNow).ok());
  ASSERT_TRUE(peers.Enter(kBob, kNow).ok());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(peers.MayBeginCall(kAnn, kNow));
  EXPECT_FALSE(peers.MayBeginCall(kAnn, kNow));
  EXPECT_TRUE(peers.MayBeginCall(kBob, kNow));
  EXPECT_TRUE(peers.MayBeginCall(kAnn, kNow + absl::Milliseconds(150)));
  EXPECT_FALSE(peers.MayBeginCall(kAnn, kNow + absl::Milliseconds(150)));
  EXPECT_FALSE(peers.MayBeginCall(kAnn, kNow)) << "a clock that was set back";
}

TEST(PeersTest, BytesThatAreNotWholeHaveALimitOfTheUsers) {
  Peers peers({.user_unfinished_bytes = 100});
  peers.LimitUnfinished([](uid_t uid) -> std::optional<uint64_t> {
    if (uid == kAnn) return 10;
    if (uid == kBob) return 1000;
    return std::nullopt;
  });
  ASSERT_TRUE(peers.Enter(kAnn, kNow).ok());
  ASSERT_TRUE(peers.Enter(kBob, kNow).ok());
  EXPECT_TRUE(peers.AddUnfinished(kAnn, 10));
  EXPECT_FALSE(peers.AddUnfinished(kAnn, 1));
  peers.TakeBackUnfinished(kAnn, 10);
  EXPECT_TRUE(peers.AddUnfinished(kAnn, 1));
  EXPECT_TRUE(peers.AddUnfinished(kBob, 100));
  EXPECT_FALSE(peers.AddUnfinished(kBob, 1)) << "the constant holds";
}

}  // namespace
}  // namespace roundhouse
