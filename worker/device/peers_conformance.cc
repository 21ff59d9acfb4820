#include "worker/device/peers_conformance.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

namespace roundhouse::worker {
namespace {

constexpr uint64_t kDeviceBytes = 64 << 20;

// What `from` sends to `to` in an exchange.
std::vector<std::byte> Letter(int from, int to, int exchange, uint64_t bytes) {
  std::vector<std::byte> letter(bytes);
  for (uint64_t i = 0; i < bytes; ++i) {
    letter[i] = static_cast<std::byte>(i * 131 + from * 31 + to * 7 + exchange);
  }
  return letter;
}

// One member's side of an exchange of all with all, in which `bytes(from, to)`
// go from one to another.
class AllToAll {
 public:
  using Bytes = std::function<uint64_t(int from, int to)>;

  AllToAll(PeerMember& member, int exchange, Bytes bytes)
      : member_(member), exchange_(exchange), bytes_(std::move(bytes)) {
    for (int other = 0; other < member.size; ++other) {
      if (other == member.rank) continue;
      PeerCopy copy{.rank = other,
                    .send_bytes = bytes_(member.rank, other),
                    .receive_bytes = bytes_(other, member.rank)};
      if (copy.send_bytes > 0) {
        copy.send = Keep(member.Upload(
            Letter(member.rank, other, exchange, copy.send_bytes)));
      }
      if (copy.receive_bytes > 0) {
        // A byte more than is received: it must stay.
        copy.receive = Keep(member.Upload(
            std::vector<std::byte>(copy.receive_bytes + 1, std::byte{0xA5})));
        received_.push_back({other, buffers_.back().get()});
      }
      copies_.push_back(copy);
    }
  }

  absl::Status Exchange() {
    return member_.group->Exchange(*member_.stream, copies_);
  }

  // After Finish.
  void ExpectReceived() {
    for (const auto& [from, buffer] : received_) {
      std::vector<std::byte> wanted =
          Letter(from, member_.rank, exchange_, bytes_(from, member_.rank));
      wanted.push_back(std::byte{0xA5});
      EXPECT_TRUE(member_.Download(*buffer) == wanted)
          << "from " << from << " to " << member_.rank << ", exchange "
          << exchange_;
    }
  }

 private:
  std::byte* Keep(std::unique_ptr<DeviceBuffer> buffer) {
    buffers_.push_back(std::move(buffer));
    return buffers_.back()->data();
  }

  PeerMember& member_;
  const int exchange_;
  const Bytes bytes_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<std::pair<int, const DeviceBuffer*>> received_;
  std::vector<PeerCopy> copies_;
};

// What a member sees of a group that ends: an Exchange may say so or be queued.
absl::Status ExchangeAndFinish(PeerMember& member, AllToAll& exchange) {
  const absl::Status asked = exchange.Exchange();
  const absl::Status finished = member.group->Finish(*member.stream);
  return asked.ok() ? finished : asked;
}

}  // namespace

std::unique_ptr<DeviceBuffer> PeerMember::Upload(
    const std::vector<std::byte>& bytes) {
  auto buffer = *device->Allocate(bytes.size(), "letter");
  EXPECT_TRUE(
      stream->CopyToDevice(buffer->data(), bytes.data(), bytes.size()).ok());
  // `bytes` may be gone when this returns.
  EXPECT_TRUE((*stream->Record())->Wait().ok());
  return buffer;
}

std::vector<std::byte> PeerMember::Download(const DeviceBuffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  EXPECT_TRUE(
      stream->CopyToHost(bytes.data(), buffer.data(), bytes.size()).ok());
  EXPECT_TRUE((*stream->Record())->Wait().ok());
  return bytes;
}

absl::Status PeerMember::Join(const PeerGroupId& id) {
  auto joined = device->peers()->Join(id, rank, size, given_up);
  if (joined.ok()) group = *std::move(joined);
  return joined.status();
}

bool PeersConformance::Open(int size) {
  for (int rank = 0; rank < size; ++rank) {
    auto device = GetParam()(rank, kDeviceBytes);
    if (absl::IsFailedPrecondition(device.status())) {
      [&] { GTEST_SKIP() << device.status().message(); }();
      return false;
    }
    auto member = std::make_unique<PeerMember>();
    member->rank = rank;
    member->size = size;
    member->device = *std::move(device);
    member->stream = *member->device->NewStream();
    members_.push_back(std::move(member));
  }
  return true;
}

void PeersConformance::Each(const std::function<void(PeerMember&)>& act) {
  std::vector<std::thread> threads;
  for (const auto& member : members_) {
    threads.emplace_back([&act, &member] { act(*member); });
  }
  for (std::thread& thread : threads) thread.join();
}

void PeersConformance::Join() {
  const PeerGroupId id = *members_[0]->device->peers()->NewGroupId();
  Each([&id](PeerMember& member) {
    const absl::Status joined = member.Join(id);
    ASSERT_TRUE(joined.ok()) << joined;
  });
  for (const auto& member : members_) ASSERT_NE(member->group, nullptr);
}

namespace {

TEST_P(PeersConformance, OneAloneIsAGroup) {
  if (!Open(1)) return;
  Join();
  PeerMember& member = *members_[0];
  EXPECT_TRUE(member.group->Exchange(*member.stream, {}).ok());
  EXPECT_TRUE(member.group->Finish(*member.stream).ok());
}

TEST_P(PeersConformance, TwoExchangeWhateverTheSizes) {
  if (!Open(2)) return;
  Join();
  const std::pair<uint64_t, uint64_t> sizes[] = {
      {1, 1},         {0, 1},         {1, 0}, {63, 4096},
      {5'000'001, 3}, {3, 5'000'001}, {0, 0}, {6'000'000, 7'000'001}};
  Each([&sizes](PeerMember& member) {
    int number = 0;
    for (const auto& [up, down] : sizes) {
      AllToAll exchange(member, ++number,
                        [up = up, down = down](int from, int) {
                          return from == 0 ? up : down;
                        });
      const absl::Status status = ExchangeAndFinish(member, exchange);
      ASSERT_TRUE(status.ok()) << status;
      exchange.ExpectReceived();
    }
  });
}

TEST_P(PeersConformance, ThreeExchangeEachWithEach) {
  if (!Open(3)) return;
  Join();
  Each([](PeerMember& member) {
    AllToAll exchange(member, 0, [](int from, int to) {
      return uint64_t{1'000'003} * (from + 2 * to);
    });
    const absl::Status status = ExchangeAndFinish(member, exchange);
    ASSERT_TRUE(status.ok()) << status;
    exchange.ExpectReceived();
  });
}

TEST_P(PeersConformance, EightExchangeEachWithEach) {
  if (!Open(8)) return;
  Join();
  Each([](PeerMember& member) {
    AllToAll exchange(member, 0, [](int from, int to) {
      return uint64_t{100'001} * ((from * 3 + to * 5) % 7);
    });
    const absl::Status status = ExchangeAndFinish(member, exchange);
    ASSERT_TRUE(status.ok()) << status;
    exchange.ExpectReceived();
  });
}

// One Finish for all.
TEST_P(PeersConformance, ManyExchangesInARowKeepTheirOrder) {
  if (!Open(3)) return;
  Join();
  Each([](PeerMember& member) {
    std::vector<std::unique_ptr<AllToAll>> exchanges;
    for (int i = 0; i < 100; ++i) {
      exchanges.push_back(
          std::make_unique<AllToAll>(member, i, [i](int from, int to) {
            return static_cast<uint64_t>((i * 517 + from * 91 + to) % 4000);
          }));
    }
    for (const auto& exchange : exchanges) {
      const absl::Status status = exchange->Exchange();
      ASSERT_TRUE(status.ok()) << status;
    }
    const absl::Status status = member.group->Finish(*member.stream);
    ASSERT_TRUE(status.ok()) << status;
    for (const auto& exchange : exchanges) exchange->ExpectReceived();
  });
}

// As parts of a slot add their sums: each gets its slice of the other's and
// adds it, all of it queued at once.
TEST_P(PeersConformance, AnExchangeIsInTheOrderOfTheStreamsWork) {
  if (!Open(2)) return;
  Join();
  constexpr int64_t kSlice = 10'000;
  Each([](PeerMember& member) {
    constexpr uint64_t kBytes = kSlice * sizeof(float);
    auto sum = *member.device->Allocate(2 * kBytes, "sum");
    auto other = *member.device->Allocate(kBytes, "the other's slice");
    auto* const floats = reinterpret_cast<float*>(sum->data());
    auto* const received = reinterpret_cast<float*>(other->data());
    const std::vector<float> ones(2 * kSlice, 1.0f + member.rank);
    Stream& stream = *member.stream;
    ASSERT_TRUE(stream.ZeroFloats(received, kSlice).ok());
    ASSERT_TRUE(
        stream
            .CopyToDevice(sum->data(),
                          reinterpret_cast<const std::byte*>(ones.data()),
                          2 * kBytes)
            .ok());
    const int mine = member.rank;
    const absl::Status exchanged = member.group->Exchange(
        stream, {{.rank = 1 - mine,
                  .send = sum->data() + (1 - mine) * kBytes,
                  .send_bytes = kBytes,
                  .receive = other->data(),
                  .receive_bytes = kBytes}});
    ASSERT_TRUE(exchanged.ok()) << exchanged;
    ASSERT_TRUE(
        stream.AddFloats(floats + mine * kSlice, received, kSlice).ok());
    std::vector<float> found(kSlice);
    ASSERT_TRUE(stream
                    .CopyToHost(reinterpret_cast<std::byte*>(found.data()),
                                sum->data() + mine * kBytes, kBytes)
                    .ok());
    const absl::Status finished = member.group->Finish(stream);
    ASSERT_TRUE(finished.ok()) << finished;
    EXPECT_EQ(found, std::vector<float>(kSlice, 3.0f));
  });
}

TEST_P(PeersConformance, AbortEndsWhoWaitsForOneThatDoesNotCome) {
  if (!Open(2)) return;
  Join();
  PeerMember& waits = *members_[0];
  const auto bytes = [](int, int) { return uint64_t{3'000'000}; };
  AllToAll exchange(waits, 0, bytes);
  std::atomic<bool> asked{false};
  std::thread knows([&] {
    while (!asked) std::this_thread::yield();
    waits.group->Abort();
  });
  asked = true;
  const absl::Status status = ExchangeAndFinish(waits, exchange);
  knows.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  // It stays so, once more aborted or not; the other one is told, too.
  waits.group->Abort();
  EXPECT_TRUE(absl::IsUnavailable(exchange.Exchange()));
  EXPECT_TRUE(absl::IsUnavailable(waits.group->Finish(*waits.stream)));
  PeerMember& late = *members_[1];
  late.group->Abort();
  AllToAll never(late, 0, bytes);
  EXPECT_TRUE(absl::IsUnavailable(ExchangeAndFinish(late, never)));
}

TEST_P(PeersConformance, AfterOneGroupsEndTheNextOneWorks) {
  if (!Open(2)) return;
  for (int round = 0; round < 3; ++round) {
    Join();
    Each([round](PeerMember& member) {
      AllToAll exchange(member, round,
                        [](int, int) { return uint64_t{70'001}; });
      const absl::Status status = ExchangeAndFinish(member, exchange);
      ASSERT_TRUE(status.ok()) << status;
      exchange.ExpectReceived();
    });
    Each([round](PeerMember& member) {
      if (round == 1) member.group->Abort();
      member.group.reset();
    });
  }
}

TEST_P(PeersConformance, GivingUpEndsTheWaitForAMemberThatNeverJoins) {
  if (!Open(2)) return;
  PeerMember& member = *members_[0];
  const PeerGroupId id = *member.device->peers()->NewGroupId();
  std::thread knows([&member] { member.given_up = true; });
  const absl::Status status = member.Join(id);
  knows.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  // Nothing of it is in the way of the next group.
  member.given_up = false;
  Join();
}

}  // namespace
}  // namespace roundhouse::worker
