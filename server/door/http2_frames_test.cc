#include "server/door/http2_frames.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(uint8_t type, size_t payload_bytes) {
  std::string out = {static_cast<char>(payload_bytes >> 16),
                     static_cast<char>(payload_bytes >> 8),
                     static_cast<char>(payload_bytes),
                     static_cast<char>(type),
                     5,
                     0,
                     0,
                     0,
                     1};
  // Payloads that look like headers of other frames.
  return out + std::string(payload_bytes, '\1');
}

struct Seen {
  std::vector<int> types;
  std::string forwarded;
};

// Gives `sent` in pieces whose ends the seed chooses; each frame is refused
// `refusals` times before it is admitted.
Seen Pass(const std::string& sent, uint64_t seed, int refusals) {
  std::mt19937_64 rng(seed);
  Http2Frames frames;
  Seen seen;
  std::string pending;
  int refused = 0;
  for (size_t at = 0; at < sent.size() || !pending.empty();) {
    const size_t piece = std::min<size_t>(sent.size() - at, rng() % 40);
    pending.append(sent, at, piece);
    at += piece;
    const size_t on = frames.Follow(pending, [&](const Http2Frame& frame) {
      if (refused++ < refusals) return false;
      refused = 0;
      EXPECT_EQ(frame.stream, 1u);
      EXPECT_EQ(frame.flags, 5);
      seen.types.push_back(frame.type);
      return true;
    });
    seen.forwarded += pending.substr(0, on);
    pending.erase(0, on);
  }
  return seen;
}

TEST(Http2FramesTest, EachFrameIsAskedAboutOnceHoweverItComes) {
  const std::string sent = std::string(kPreface) + Frame(4, 0) + Frame(1, 70) +
                           Frame(0, 70000) + Frame(3, 4) + Frame(1, 0) +
                           Frame(8, 4);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (int refusals : {0, 3}) {
      const Seen seen = Pass(sent, seed, refusals);
      EXPECT_EQ(seen.types, (std::vector<int>{4, 1, 0, 3, 1, 8}));
      EXPECT_EQ(seen.forwarded, sent);
    }
  }
}

TEST(Http2FramesTest, NothingOfARefusedFrameGoesOn) {
  Http2Frames frames;
  const std::string sent = std::string(kPreface) + Frame(4, 6) + Frame(1, 9);
  const auto all_but_calls = [](const Http2Frame& frame) {
    return frame.type != kHeadersFrame;
  };
  EXPECT_EQ(frames.Follow(sent, all_but_calls), 24u + 15u);
  EXPECT_EQ(frames.Follow(sent.substr(39), all_but_calls), 0u);
  EXPECT_EQ(
      frames.Follow(sent.substr(39), [](const Http2Frame&) { return true; }),
      18u);
}

TEST(Http2FramesTest, APrefaceAloneHasBegunNothing) {
  Http2Frames frames;
  const auto any = [](const Http2Frame&) { return true; };
  EXPECT_EQ(frames.Follow(kPreface, any), 24u);
  EXPECT_FALSE(frames.begun());
  frames.Follow(Frame(4, 0), any);
  EXPECT_TRUE(frames.begun());
}

}  // namespace
}  // namespace roundhouse
