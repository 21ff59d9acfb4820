#include "server/calls/stream_pump.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uid_t kAnn = 40'001;
constexpr uid_t kBob = 40'002;

class StreamPumpTest : public testing::Test {
 protected:
  // Takes places until it is refused; what was said then.
  std::string Exhaust(const Peer& uid, StreamKind kind) {
    while (true) {
      auto place = pump_.Take(uid, kind);
      if (!place.ok()) return std::string(place.status().message());
      places_.push_back(*std::move(place));
    }
  }

  StreamPump pump_;
  std::vector<StreamPlace> places_;
};

TEST_F(StreamPumpTest, AUserWhoHasAllOfHisStreamsLeavesTheOthersTheirs) {
  EXPECT_EQ(Exhaust(kAnn, StreamKind::kFollow),
            "you have 100 streams open, the most of a user; end some and try "
            "again");
  EXPECT_EQ(places_.size(), kMaxStreamsEach);
  EXPECT_FALSE(pump_.Take(kAnn, StreamKind::kSample).ok());
  EXPECT_TRUE(pump_.Take(kBob, StreamKind::kFollow).ok());
  places_.pop_back();
  EXPECT_TRUE(pump_.Take(kAnn, StreamKind::kSample).ok());
}

TEST_F(StreamPumpTest, WhatOthersWaitForHasASmallerShare) {
  EXPECT_EQ(Exhaust(kAnn, StreamKind::kExport),
            "you have 4 exports open, the most of a user; end some and try "
            "again");
  EXPECT_EQ(places_.size(), 4u);
  EXPECT_TRUE(pump_.Take(kAnn, StreamKind::kFollow).ok());
  EXPECT_TRUE(pump_.Take(kBob, StreamKind::kExport).ok());
  Exhaust(kBob, StreamKind::kSample);
  Exhaust(kBob, StreamKind::kTrace);
  EXPECT_EQ(Exhaust(kBob, StreamKind::kPull),
            "you have 4 pulls open, the most of a user; end some and try "
            "again");
  EXPECT_EQ(places_.size(), 4u + 8u + 4u + 4u);
}

TEST_F(StreamPumpTest, AllTogetherHaveALimit) {
  for (uid_t uid = 1; places_.size() < kMaxStreams; ++uid) {
    Exhaust(uid, StreamKind::kFollow);
  }
  EXPECT_EQ(pump_.Take(kBob, StreamKind::kFollow).status().message(),
            "2000 streams are open, the most in all; try again later");
  places_.clear();
  EXPECT_TRUE(pump_.Take(kBob, StreamKind::kFollow).ok());
}

TEST_F(StreamPumpTest, APlaceThatMovesIsGivenBackOnce) {
  auto first = pump_.Take(kAnn, StreamKind::kExport);
  ASSERT_TRUE(first.ok());
  std::optional<StreamPlace> second(*std::move(first));
  first = absl::CancelledError();
  Exhaust(kAnn, StreamKind::kExport);
  EXPECT_EQ(places_.size(), 3u) << "the second still has it";
  second.reset();
  EXPECT_TRUE(pump_.Take(kAnn, StreamKind::kExport).ok());
}

class FakeStream final : public PumpedStream {
 public:
  void Pump(absl::Time) override { ++pumped_; }
  int pumped() const { return pumped_; }

 private:
  std::atomic<int> pumped_ = 0;
};

TEST_F(StreamPumpTest, StreamsArePumpedWhenTheyBeginAreWokenAndInBetween) {
  auto stream = std::make_shared<FakeStream>();
  pump_.Add(stream);
  const uint64_t changes = pump_.changes();
  pump_.StoreChanged();
  EXPECT_NE(pump_.changes(), changes);
  // Nobody wakes it any more.
  for (int before = stream->pumped(); stream->pumped() < before + 3;) {
    std::this_thread::yield();
  }
  pump_.Remove(stream.get());
  pump_.WakeOne(stream.get());
}

}  // namespace
}  // namespace roundhouse
