#include "worker/transfer/pinned_arena.h"

#include <memory>
#include <thread>

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
  while (pinned.pinned_bytes() != bytes) std::this_thread::yield();
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
  {
    PinnedArena pinned(*device_, *arena_);
    while (PinnedOf(*device_).refusals() == 0) std::this_thread::yield();
    // What there would be room for now is not asked for again.
    PinnedOf(*device_).set_limit_bytes(uint64_t{1} << 40);
    Keep(arena_->size_bytes());
    pinned.Update();
    EXPECT_EQ(pinned.pinned_bytes(), 2 * kPiece);
  }
  EXPECT_EQ(PinnedOf(*device_).refusals(), 1);
}

}  // namespace
}  // namespace roundhouse::worker
