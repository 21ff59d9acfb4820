#include "base/files/whole_io.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/files/descriptor.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

TEST(WholeIoTest, AWriteGoesOnWhereLittleIsTaken) {
  std::string file;
  int calls = 0;
  EXPECT_TRUE(WriteAll("abcdefgh", [&](const char* from, size_t bytes) {
    if (++calls == 2) {
      errno = EINTR;
      return ssize_t{-1};
    }
    const size_t taken = std::min<size_t>(bytes, 3);
    file.append(from, taken);
    return static_cast<ssize_t>(taken);
  }));
  EXPECT_EQ(file, "abcdefgh");
  EXPECT_EQ(calls, 4);
}

TEST(WholeIoTest, AWriteThatFailsSaysWhy) {
  std::string file;
  EXPECT_FALSE(WriteAll("abcdef", [&](const char* from, size_t) {
    if (!file.empty()) {
      errno = ENOSPC;
      return ssize_t{-1};
    }
    file.append(from, 4);
    return ssize_t{4};
  }));
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(file, "abcd");
  EXPECT_FALSE(WriteAll(-1, "x"));
  EXPECT_EQ(errno, EBADF);
  EXPECT_TRUE(WriteAll(-1, "")) << "nothing to write";
}

TEST(WholeIoTest, AReadGoesOnToTheEndOrUntilItIsEnough) {
  int calls = 0;
  const auto read = [&](char* target, size_t) {
    if (++calls == 1) {
      errno = EINTR;
      return ssize_t{-1};
    }
    if (calls == 4) return ssize_t{0};
    std::memcpy(target, "xyz", 3);
    return ssize_t{3};
  };
  std::string text;
  EXPECT_TRUE(ReadToEnd(read, [&](absl::string_view piece) {
    text.append(piece.data(), piece.size());
    return true;
  }));
  EXPECT_EQ(text, "xyzxyz");
  calls = 0;
  EXPECT_TRUE(ReadToEnd(read, [](absl::string_view) { return false; }));
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(ReadToEnd(
      [](char*, size_t) {
        errno = EIO;
        return ssize_t{-1};
      },
      [](absl::string_view) { return true; }));
  EXPECT_EQ(errno, EIO);
}

TEST(WholeIoTest, ARangeIsReadAsFarAsItIsThere) {
  const Descriptor file(memfd_create("range", MFD_CLOEXEC));
  ASSERT_TRUE(WriteAll(file.get(), "0123456789"));
  char text[8] = {};
  EXPECT_EQ(ReadAt(file.get(), 4, text, 3), 3u);
  EXPECT_EQ(std::string(text, 3), "456");
  EXPECT_EQ(ReadAt(file.get(), 7, text, 8), 3u);
  EXPECT_EQ(std::string(text, 3), "789");
  EXPECT_EQ(ReadAt(file.get(), 99, text, 8), 0u);
  EXPECT_EQ(ReadAt(-1, 0, text, 8), std::nullopt);
  EXPECT_EQ(errno, EBADF);
}

TEST(DescriptorTest, ClosesOnceAndKeepsErrno) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  Descriptor read_end(fds[0]);
  Descriptor write_end(fds[1]);
  Descriptor moved = std::move(write_end);
  EXPECT_EQ(write_end.get(), -1);
  EXPECT_EQ(moved.get(), fds[1]);
  errno = EXDEV;
  moved = Descriptor();
  EXPECT_EQ(errno, EXDEV);
  char none;
  EXPECT_EQ(read(read_end.get(), &none, 1), 0) << "the other end is closed";
  const int released = read_end.Release();
  read_end = Descriptor();
  EXPECT_EQ(fcntl(released, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(close(released), 0);
}

}  // namespace
}  // namespace roundhouse
