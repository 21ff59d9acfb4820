#include "base/wire/words.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/wire/arena.h"
#include "gtest/gtest.h"

namespace roundhouse::wire {
namespace {

constexpr uint64_t kWordsOffset = 1 << 16;

std::unique_ptr<Arena> TestArena() {
  auto arena = Arena::Create(1 << 20, 4);
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

void WaitForWord(Arena& arena, int worker, uint64_t offset, uint64_t value) {
  Word& word = arena.WordAt(offset);
  Doorbell& bell = arena.doorbells().bell[worker];
  while (!Reached(word, value)) {
    WaitForRing(bell, absl::Seconds(60), [&] { return Reached(word, value); });
  }
}

// Two threads hand a counter back and forth: a lost wake-up would hang for the
// waiter's minute and time the test out.
TEST(WordsTest, PingPongLosesNoWakeUp) {
  auto arena = TestArena();
  constexpr uint64_t kTurns = 20000;
  const uint64_t ping = kWordsOffset, pong = kWordsOffset + sizeof(Word);
  int64_t payload = 0;
  std::thread other([&] {
    for (uint64_t turn = 1; turn <= kTurns; ++turn) {
      WaitForWord(*arena, 1, ping, turn);
      ++payload;
      Raise(arena->WordAt(pong), turn, arena->doorbells());
    }
  });
  for (uint64_t turn = 1; turn <= kTurns; ++turn) {
    ++payload;
    Raise(arena->WordAt(ping), turn, arena->doorbells());
    WaitForWord(*arena, 0, pong, turn);
  }
  other.join();
  EXPECT_EQ(payload, static_cast<int64_t>(2 * kTurns));
}

TEST(WordsTest, CrossesProcesses) {
  auto arena = TestArena();
  const pid_t child = fork();
  if (child == 0) {
    auto mapped = Arena::Map(dup(arena->fd()));
    if (!mapped.ok()) _exit(2);
    WaitForWord(**mapped, 2, kWordsOffset, 5);
    _exit((*mapped)->At<int>(kWordsOffset + 4096)[0] == 42 ? 0 : 3);
  }
  *arena->At<int>(kWordsOffset + 4096) = 42;
  Raise(arena->WordAt(kWordsOffset), 5, arena->doorbells());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(WordsTest, FallingWordIsABug) {
  auto arena = TestArena();
  Raise(arena->WordAt(kWordsOffset), 3, arena->doorbells());
  EXPECT_DEATH(Raise(arena->WordAt(kWordsOffset), 3, arena->doorbells()),
               "a word may only rise: was 3, raised to 3");
}

TEST(WordsTest, CancelNamesOneAttempt) {
  auto arena = TestArena();
  Doorbell& bell = arena->doorbells().bell[0];
  bell.cancel[6 % kMaxDispatchedSlots] = 6;
  EXPECT_TRUE(Cancelled(bell, 6));
  EXPECT_FALSE(Cancelled(bell, 6 + kMaxDispatchedSlots));
  EXPECT_FALSE(Cancelled(bell, 5));
}

TEST(ArenaTest, OffsetsOutsideAreABug) {
  auto arena = TestArena();
  EXPECT_DEATH(arena->At<Word>(arena->size_bytes() - 8), "in an arena of");
  EXPECT_DEATH(arena->At<uint64_t>(12), "offset 12");
  EXPECT_DEATH(arena->At<float>(0, uint64_t{1} << 62), "in an arena of");
}

TEST(ArenaTest, ForeignFileIsRefused) {
  char path[] = "/tmp/arena_testXXXXXX";
  const int fd = mkstemp(path);
  ASSERT_EQ(unlink(path), 0);
  ASSERT_EQ(ftruncate(fd, 1 << 20), 0);
  EXPECT_EQ(Arena::Map(fd).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(JournalTest, PacksAndUnpacks) {
  const JournalEntry entry{123456789, 77, ChunkState::kReady};
  const JournalEntry back = UnpackJournal(PackJournal(entry));
  EXPECT_EQ(back.operation, entry.operation);
  EXPECT_EQ(back.scratch_slot, entry.scratch_slot);
  EXPECT_EQ(back.state, entry.state);
}

}  // namespace
}  // namespace roundhouse::wire
