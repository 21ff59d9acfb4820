#include "server/arena/arena_pages.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr uint64_t kPiece = ArenaPages::kPieceBytes;
constexpr uint64_t kRange = 8 << 20;

class ArenaPagesTest
    : public testing::TestWithParam<std::tuple<FreedPages, bool>> {
 protected:
  // Ranges of at least a MiB in the background.
  void Open(uint64_t arena_bytes) {
    arena_ = *wire::Arena::Create(arena_bytes, 1);
    pages_ = std::make_unique<ArenaPages>(
        *arena_, ArenaPagesOptions{.freed = std::get<0>(GetParam()),
                                   .loop = loop_.get(),
                                   .background_bytes = 1 << 20,
                                   .huge = std::get<1>(GetParam())});
  }
  bool keeps() const { return std::get<0>(GetParam()) == FreedPages::kKept; }

  uint64_t MemoryBytes() const {
    struct stat info = {};
    EXPECT_EQ(fstat(arena_->fd(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }
  void Write(uint64_t offset, uint64_t bytes) {
    std::memset(arena_->At<char>(offset, bytes), 7, bytes);
  }
  bool IsZero(uint64_t offset, uint64_t bytes) const {
    const char* const data = arena_->At<char>(offset, bytes);
    return std::all_of(data, data + bytes, [](char c) { return c == 0; });
  }
  absl::Status AwaitReady() {
    absl::Status found = absl::UnknownError("not called");
    pages_->WhenReady([&](const absl::Status& status) {
      found = status;
      loop_->After(absl::ZeroDuration(), [this] { loop_->Quit(); });
    });
    loop_->Run();
    return found;
  }

  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::unique_ptr<wire::Arena> arena_;
  std::unique_ptr<ArenaPages> pages_;
};

INSTANTIATE_TEST_SUITE_P(FreedPages, ArenaPagesTest,
                         testing::Combine(testing::Values(FreedPages::kReturned,
                                                          FreedPages::kKept),
                                          testing::Bool()));

TEST_P(ArenaPagesTest, PagesAreThereWhenTheyAreReady) {
  Open(64 << 20);
  ASSERT_TRUE(pages_->Add(4096, kRange).ok());
  ASSERT_TRUE(pages_->Add(2 * kRange, kRange).ok());
  Write(2 * kRange, 100);  // a table, before
  ASSERT_TRUE(AwaitReady().ok());
  EXPECT_GE(MemoryBytes(), 2 * kRange);
  EXPECT_FALSE(IsZero(2 * kRange, 100));
  EXPECT_TRUE(IsZero(2 * kRange + 100, kRange - 100));
  EXPECT_EQ(arena_->header().kept_bytes, keeps() ? arena_->size_bytes() : 0);
}

TEST_P(ArenaPagesTest, NothingToWaitForIsReadyAtOnce) {
  Open(64 << 20);
  ASSERT_TRUE(pages_->Add(4096, 4096).ok());
  if (!keeps()) {
    bool ready = false;
    pages_->WhenReady([&](const absl::Status& s) { ready = s.ok(); });
    EXPECT_TRUE(ready);
  }
  EXPECT_TRUE(AwaitReady().ok());
}

TEST_P(ArenaPagesTest, WhatIsGivenBackIsZeroOrGone) {
  Open(64 << 20);
  ASSERT_TRUE(pages_->Add(kRange, kRange).ok());
  Write(kRange, kRange);
  const bool at_once = pages_->Clean(kRange, kRange, [this] { loop_->Quit(); });
  EXPECT_FALSE(at_once);
  loop_->Run();
  EXPECT_EQ(MemoryBytes() <= 4096, !keeps());
  EXPECT_TRUE(IsZero(kRange, kRange));
  Write(kRange, 5000);
  EXPECT_TRUE(pages_->Clean(kRange, 8192, [] { FAIL(); }));
  EXPECT_TRUE(IsZero(kRange, 8192));
}

TEST_P(ArenaPagesTest, NobodyWhoForgotIsCalled) {
  Open(64 << 20);
  ASSERT_TRUE(pages_->Add(4096, kRange).ok());
  const auto waiter =
      pages_->WhenReady([](const absl::Status&) { FAIL() << "was forgotten"; });
  pages_->Forget(waiter);
  EXPECT_TRUE(AwaitReady().ok());
}

TEST_P(ArenaPagesTest, MemoryThatTheSystemDoesNotHaveIsSaidAndAskedForAgain) {
  Open(64 << 20);
  const int arena = dup(arena_->fd());
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, arena_->fd());  // has no pages to give
  ASSERT_TRUE(pages_->Add(4096, kRange).ok());
  absl::Status first;
  absl::Status second;
  pages_->WhenReady([&](const absl::Status& status) { first = status; });
  pages_->WhenReady([&](const absl::Status& status) {
    second = status;
    dup2(arena, arena_->fd());
    EXPECT_EQ(arena_->header().kept_bytes, 0u);
    EXPECT_TRUE(pages_->Add(4096, kRange).ok());
    pages_->WhenReady([this](const absl::Status& again) {
      EXPECT_TRUE(again.ok()) << again;
      loop_->Quit();
    });
  });
  loop_->Run();
  EXPECT_EQ(first.code(), absl::StatusCode::kResourceExhausted) << first;
  EXPECT_EQ(second, first);
  EXPECT_GE(MemoryBytes(), kRange);
  close(arena);
  close(null);
}

TEST_P(ArenaPagesTest, KeptPagesGrowByWholePiecesInOrder) {
  Open(2 * kPiece + kPiece / 2);
  std::vector<uint64_t> kept;
  for (const uint64_t end : {kPiece / 4, kPiece / 2, 2 * kPiece + 4096}) {
    ASSERT_TRUE(pages_->Add(end - kRange / 4, kRange / 4).ok());
    pages_->WhenReady([&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      kept.push_back(arena_->header().kept_bytes);
    });
  }
  ASSERT_TRUE(AwaitReady().ok());
  if (!keeps()) return;
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_GE(kept.front(), kPiece);
  EXPECT_EQ(kept.back(), arena_->size_bytes());
  EXPECT_EQ(MemoryBytes(), arena_->size_bytes());
}

TEST_P(ArenaPagesTest, GoesWhileThereIsWork) {
  Open(8 * kPiece);
  ASSERT_TRUE(pages_->Add(4096, 2 * kPiece).ok());
  pages_->Clean(4 * kPiece, kPiece, [] {});
  pages_->WhenReady([](const absl::Status&) {});
  pages_.reset();
  EXPECT_LE(MemoryBytes(), 2 * kPiece);
}

}  // namespace
}  // namespace roundhouse
