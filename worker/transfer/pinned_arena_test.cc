#include "worker/transfer/pinned_arena.h"

#include <memory>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/device/lazy_device.h"

namespace roundhouse::worker {
namespace {

constexpr uint64_t kPiece = 64 << 10;

class PinnedArenaTest : public testing::Test {
 protected:
  void Keep(uint64_t bytes) { arena_->header().kept_bytes = bytes; }

  const std::unique_ptr<wire::Arena> arena_ =
      *wire::Arena::Create(3 * kPiece + 4096, 1);
  const std::unique_ptr<Device> device_ = NewLazyDevice(1 << 20);
};

void AwaitPinned(const PinnedArena& pinned, uint64_t bytes) {
  while (pinned.pinned_bytes() != bytes) absl::SleepFor(absl::Milliseconds(1));
}

TEST_F(PinnedArenaTest, AnArenaThatKeepsNoPagesIsNotPinned) {
  Keep(2 * kPiece);
  PinnedArena pinned(*device_, *arena_);
  pinned.Update();
  EXPECT_EQ(pinned.pinned_bytes(), 0u);
}

TEST_F(PinnedArenaTest, WhatIsKeptIsPinnedAtTheStartAndAsItGrows) {
  arena_->header().piece_bytes = kPiece;
  Keep(2 * kPiece);
  {
    PinnedArena pinned(*device_, *arena_);
    AwaitPinned(pinned, 2 * kPiece);
    pinned.Update();
    Keep(arena_->size_bytes());
    pinned.Update();
    AwaitPinned(pinned, 3 * kPiece + 4096);  // a short piece at the end
    EXPECT_EQ(PinnedOf(*device_).bytes(), arena_->size_bytes());
  }
  EXPECT_EQ(PinnedOf(*device_).bytes(), 0u);
}

TEST_F(PinnedArenaTest, WhatTheSystemDoesNotPinStaysAsItIs) {
  arena_->header().piece_bytes = kPiece;
  Keep(3 * kPiece);
  PinnedOf(*device_).set_limit_bytes(2 * kPiece);
  PinnedArena pinned(*device_, *arena_);
  AwaitPinned(pinned, 2 * kPiece);
  Keep(arena_->size_bytes());
  pinned.Update();
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(pinned.pinned_bytes(), 2 * kPiece);
}

}  // namespace
}  // namespace roundhouse::worker
