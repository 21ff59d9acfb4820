// A CPU device's peers: the suite, and what only sockets and processes have.
#include "worker/device/cpu/socket_peers.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>

#include "base/files/descriptor.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/device/cpu/socket_mesh.h"
#include "worker/device/peers_conformance.h"

namespace roundhouse::worker {
namespace {

absl::StatusOr<std::unique_ptr<Device>> OpenCpu(int, uint64_t memory_bytes) {
  return NewCpuDevice(memory_bytes);
}

INSTANTIATE_TEST_SUITE_P(Cpu, PeersConformance,
                         testing::Values(PeerDeviceFactory(&OpenCpu)));

constexpr size_t kBytes = 8 << 20;

// Member `rank` of `size`, in this process.
std::unique_ptr<PeerMember> Member(int rank, int size) {
  auto member = std::make_unique<PeerMember>();
  member->rank = rank;
  member->size = size;
  member->device = NewCpuDevice(2 * kBytes);
  member->stream = *member->device->NewStream();
  return member;
}

PeerGroupId NewId() { return *NewCpuDevice(64)->peers()->NewGroupId(); }

// A process that is member 1 of `size`, does `act` and is killed.
class KilledMember {
 public:
  KilledMember(const PeerGroupId& id, int size,
               const std::function<void(PeerMember&)>& act)
      : process_(fork()) {
    if (process_ != 0) return;
    auto member = Member(1, size);
    if (member->Join(id).ok()) act(*member);
    raise(SIGKILL);
  }
  void ExpectKilled() const {
    int status = 0;
    ASSERT_EQ(waitpid(process_, &status, 0), process_);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }

 private:
  const pid_t process_;
};

// Half of what it sends is memory that cannot be read: it gets as far as that.
TEST(SocketPeersTest, AMemberThatIsKilledInTheMiddleOfAnExchangeIsGone) {
  const PeerGroupId id = NewId();
  const KilledMember other(id, 2, [](PeerMember& member) {
    auto* const memory =
        static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory + kBytes / 2, kBytes / 2, PROT_NONE);
    member.group
        ->Exchange(*member.stream,
                   {{.rank = 0, .send = memory, .send_bytes = kBytes}})
        .IgnoreError();
  });
  auto member = Member(0, 2);
  ASSERT_TRUE(member->Join(id).ok());
  auto received =
      member->Upload(std::vector<std::byte>(kBytes, std::byte{0xA5}));
  const absl::Status status = member->group->Exchange(
      *member->stream,
      {{.rank = 1, .receive = received->data(), .receive_bytes = kBytes}});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("rank 1 is gone"), std::string::npos)
      << status;
  const std::vector<std::byte> found = member->Download(*received);
  EXPECT_EQ(found.front(), std::byte{0});
  EXPECT_EQ(found.back(), std::byte{0xA5});
  EXPECT_EQ(member->group->Finish(*member->stream), status);
  other.ExpectKilled();
}

TEST(SocketPeersTest, SendingToAMemberThatWasKilledIsNoSignal) {
  const PeerGroupId id = NewId();
  const KilledMember other(id, 2, [](PeerMember&) {});
  auto member = Member(0, 2);
  // It may be gone before it was noticed that it came.
  const absl::Status joined = member->Join(id);
  other.ExpectKilled();
  if (!joined.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(joined)) << joined;
    return;
  }
  auto sent = member->Upload(std::vector<std::byte>(kBytes));
  const absl::Status status = member->group->Exchange(
      *member->stream,
      {{.rank = 1, .send = sent->data(), .send_bytes = kBytes}});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

// Somebody who calls member `rank`, as soon as it listens, and says `hello`.
Descriptor Call(const PeerGroupId& id, int rank, const std::string& hello) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = PeerSocketName(id, rank);
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Descriptor caller(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  while (connect(caller.get(), reinterpret_cast<const sockaddr*>(&address),
                 bytes) != 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(send(caller.get(), hello.data(), hello.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(hello.size()));
  return caller;
}

// Member 2 never comes; nobody waits two minutes for it.
TEST(SocketPeersTest, AMemberThatDiesWhileOthersJoinEndsTheirWait) {
  const PeerGroupId id = NewId();
  std::thread dies([&id] { Call(id, 0, PeerHello(id, 1, 3)); });
  const absl::Status status = Member(0, 3)->Join(id);
  dies.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("rank 1 is gone"), std::string::npos)
      << status;
}

TEST(SocketPeersTest, StrangersAreDropped) {
  const PeerGroupId id = NewId();
  PeerGroupId only_the_name = id;
  only_the_name.back() ^= 1;
  const std::string hellos[] = {
      "",
      "who is there?",
      std::string(1000, 'x'),
      PeerHello(only_the_name, 1, 2),  // knows no more than the name
      PeerHello(id, 1, 3),             // means another group
      PeerHello(id, 0, 2),             // the rank that is called
      PeerHello(id, 2, 2),
      PeerHello(id, -1, 2),
  };
  auto first = Member(0, 2);
  auto second = Member(1, 2);
  std::thread listens([&] { EXPECT_TRUE(first->Join(id).ok()); });
  std::vector<Descriptor> strangers;
  for (const std::string& hello : hellos) {
    strangers.push_back(Call(id, 0, hello));
  }
  EXPECT_TRUE(second->Join(id).ok());
  listens.join();
  char byte;
  for (const Descriptor& stranger : strangers) {
    EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0);  // hung up on
  }
  std::byte sent{7};
  std::byte received{0};
  EXPECT_TRUE(second->group
                  ->Exchange(*second->stream,
                             {{.rank = 0, .send = &sent, .send_bytes = 1}})
                  .ok());
  EXPECT_TRUE(
      first->group
          ->Exchange(*first->stream,
                     {{.rank = 1, .receive = &received, .receive_bytes = 1}})
          .ok());
  EXPECT_EQ(received, sent);
}

TEST(SocketPeersTest, ARankThatIsThereAlreadyIsUnavailable) {
  const PeerGroupId id = NewId();
  auto first = Member(0, 2);
  std::thread listens(
      [&] { EXPECT_TRUE(absl::IsUnavailable(first->Join(id))); });
  Call(id, 0, "");  // it listens
  const absl::Status status = Member(0, 2)->Join(id);
  first->given_up = true;
  listens.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("rank 0 cannot listen"), std::string::npos)
      << status;
}

TEST(SocketPeersTest, MembersThatMeanDifferentCallsAreTold) {
  const PeerGroupId id = NewId();
  auto first = Member(0, 2);
  auto second = Member(1, 2);
  std::thread joins([&] { EXPECT_TRUE(first->Join(id).ok()); });
  EXPECT_TRUE(second->Join(id).ok());
  joins.join();
  std::byte letter[16] = {};
  EXPECT_TRUE(second->group
                  ->Exchange(*second->stream,
                             {{.rank = 0, .send = letter, .send_bytes = 15}})
                  .ok());
  const absl::Status status = first->group->Exchange(
      *first->stream,
      {{.rank = 1, .receive = letter, .receive_bytes = sizeof(letter)}});
  EXPECT_EQ(status, absl::UnavailableError(
                        "peers: rank 1 sends another number of bytes than is "
                        "received"));
}

TEST(SocketPeersTest, ALostDeviceIsAborted) {
  auto member = Member(0, 1);
  PeerLink& peers = *member->device->peers();
  ASSERT_TRUE(member->Join(NewId()).ok());
  ASSERT_TRUE(member->stream->BreakDevice().ok());
  EXPECT_TRUE(absl::IsAborted(member->group->Exchange(*member->stream, {})));
  EXPECT_TRUE(absl::IsAborted(member->group->Finish(*member->stream)));
  EXPECT_TRUE(absl::IsAborted(peers.NewGroupId().status()));
  EXPECT_TRUE(absl::IsAborted(member->Join(NewId())));
}

}  // namespace
}  // namespace roundhouse::worker
