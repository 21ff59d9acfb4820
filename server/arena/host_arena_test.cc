#include "server/arena/host_arena.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uint64_t kLimit = 1 << 20;

TEST(HostArenaTest, RefusesWithTheBytes) {
  auto arena = *HostArena::Create(kLimit, 4);
  const auto range = arena->Allocate(2 * kLimit);
  EXPECT_EQ(range.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(range.status().message().find("2097152 bytes (2.0 MiB) wanted"),
            std::string::npos)
      << range.status();
  EXPECT_NE(
      range.status().message().find("of 1048576 bytes (1.0 MiB) are free"),
      std::string::npos);
}

TEST(HostArenaTest, FreedMemoryComesBackZeroed) {
  auto arena = *HostArena::Create(kLimit, 4);
  const uint64_t used = arena->used_bytes();
  const uint64_t offset = *arena->Allocate(10000);
  EXPECT_EQ(arena->used_bytes(), used + 12288);
  std::memset(arena->arena().At<char>(offset, 10000), 7, 10000);
  arena->Free(offset);
  EXPECT_EQ(arena->used_bytes(), used);
  const uint64_t again = *arena->Allocate(10000);
  EXPECT_EQ(again, offset);
  for (int i = 0; i < 10000; ++i) {
    ASSERT_EQ(arena->arena().At<char>(again, 10000)[i], 0);
  }
}

uint64_t MemoryBytes(HostArena& arena) {
  struct stat info = {};
  EXPECT_EQ(fstat(arena.arena().fd(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

TEST(HostArenaTest, FreedPagesGoBackToTheSystemOrAreKept) {
  for (const FreedPages freed : {FreedPages::kReturned, FreedPages::kKept}) {
    auto arena = *HostArena::Create(kLimit, 4, {.freed = freed});
    const auto range = ArenaRange::Allocate(*arena, 300000);
    const uint64_t held = MemoryBytes(*arena);
    { const auto moved = ArenaRange::Allocate(*arena, 300000); }
    const bool kept = freed == FreedPages::kKept;
    // All of an arena that is smaller than a piece.
    EXPECT_EQ(MemoryBytes(*arena), kept ? kLimit : held);
    EXPECT_EQ(arena->arena().header().kept_bytes, kept ? kLimit : 0);
  }
}

TEST(HostArenaTest, KeptPagesComeByPiecesAndZeroed) {
  constexpr uint64_t kPiece = ArenaPages::kPieceBytes;
  auto arena =
      *HostArena::Create(3 * kPiece / 2, 4, {.freed = FreedPages::kKept});
  EXPECT_EQ(arena->arena().header().piece_bytes, kPiece);
  EXPECT_EQ(arena->arena().header().kept_bytes, 0u);
  const uint64_t first = *arena->Allocate(kPiece / 2);
  EXPECT_EQ(arena->arena().header().kept_bytes, kPiece);
  const uint64_t across = *arena->Allocate(3 * kPiece / 4);
  EXPECT_EQ(arena->arena().header().kept_bytes, 3 * kPiece / 2);
  EXPECT_EQ(MemoryBytes(*arena), 3 * kPiece / 2);
  std::memset(arena->arena().At<char>(first, 5000), 7, 5000);
  std::memset(arena->arena().At<char>(across, 5000), 7, 5000);
  arena->Free(first);
  arena->Free(across);
  EXPECT_EQ(MemoryBytes(*arena), 3 * kPiece / 2);
  // Over what both had, and over what nobody had.
  const uint64_t again = *arena->Allocate(kPiece + kPiece / 3);
  EXPECT_EQ(again, first);
  const char* const bytes = arena->arena().At<char>(again, kPiece);
  EXPECT_TRUE(
      std::all_of(bytes, bytes + kPiece, [](char c) { return c == 0; }));
}

TEST(HostArenaTest, TheLargestGapCanBeHad) {
  auto arena = *HostArena::Create(kLimit, 4);
  EXPECT_EQ(arena->largest_gap_bytes(), kLimit - arena->used_bytes());
  const uint64_t first = *arena->Allocate(300000);
  const uint64_t wall = *arena->Allocate(1);
  arena->Free(first);
  const uint64_t gap = arena->largest_gap_bytes();
  EXPECT_LT(gap, kLimit - arena->used_bytes());
  EXPECT_TRUE(arena->Allocate(gap).ok());
  EXPECT_EQ(arena->largest_gap_bytes(), wall - first);
}

TEST(HostArenaTest, FreeOfSomethingElseIsABug) {
  auto arena = *HostArena::Create(kLimit, 4);
  const uint64_t offset = *arena->Allocate(1);
  EXPECT_DEATH(arena->Free(offset + 4096), "check failed");
  EXPECT_DEATH(arena->Free(0), "check failed");
}

class HostArenaRandomTest : public testing::TestWithParam<FreedPages> {};
INSTANTIATE_TEST_SUITE_P(FreedPages, HostArenaRandomTest,
                         testing::Values(FreedPages::kReturned,
                                         FreedPages::kKept));

TEST_P(HostArenaRandomTest, UseNeverOverlapsAndNeverLeaks) {
  auto arena = *HostArena::Create(kLimit, 4, {.freed = GetParam()});
  const uint64_t used = arena->used_bytes();
  std::mt19937 random(5);
  struct Held {
    ArenaRange range;
    unsigned char mark;
  };
  std::vector<Held> held;
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    if (random() % 2 == 0 || held.empty()) {
      auto range = ArenaRange::Allocate(*arena, 1 + random() % 60000);
      if (!range.ok()) {
        ++refused;
        continue;
      }
      const auto mark = static_cast<unsigned char>(random());
      char* const bytes =
          arena->arena().At<char>(range->offset(), range->bytes());
      for (uint64_t b = 0; b < range->bytes(); b += 512) {
        ASSERT_EQ(bytes[b], 0);
      }
      std::memset(bytes, mark, range->bytes());
      held.push_back({*std::move(range), mark});
    } else {
      const size_t victim = random() % held.size();
      const auto* bytes = arena->arena().At<unsigned char>(
          held[victim].range.offset(), held[victim].range.bytes());
      for (uint64_t b = 0; b < held[victim].range.bytes(); b += 512) {
        ASSERT_EQ(bytes[b], held[victim].mark);
      }
      held.erase(held.begin() + static_cast<int64_t>(victim));
    }
  }
  EXPECT_GT(refused, 0);
  held.clear();
  EXPECT_EQ(arena->used_bytes(), used);
}

}  // namespace
}  // namespace roundhouse
