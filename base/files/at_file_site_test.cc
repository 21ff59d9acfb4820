#include "base/files/at_file_site.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "base/files/file_fault.h"
#include "gtest/gtest.h"

namespace {

thread_local const char* current = nullptr;
thread_local std::vector<std::string> told;

std::string Current() { return current == nullptr ? "" : current; }

}  // namespace

// This stands in place of the library's; the program exports its symbols.
extern "C" const char* roundhouse_set_file_site(const char* site) {
  const char* const before = current;
  current = site;
  told.push_back(Current());
  return before;
}

namespace roundhouse {
namespace {

TEST(AtFileSiteTest, TheSiteBeforeComesBack) {
  EXPECT_EQ(Current(), "");
  {
    const AtFileSite outer(kMergeWrite);
    EXPECT_EQ(Current(), "merge.write");
    {
      const AtFileSite inner(kJobLog);
      EXPECT_EQ(Current(), "job.log");
    }
    EXPECT_EQ(Current(), "merge.write");
  }
  EXPECT_EQ(Current(), "");
}

TEST(AtFileSiteTest, ErrnoIsTheCalls) {
  {
    const AtFileSite at(kJobLog);
    errno = EDQUOT;
  }
  EXPECT_EQ(errno, EDQUOT);
}

// Every call of file_fault.h tells its site, once, and leaves none behind.
TEST(AtFileSiteTest, EachCallIsAtItsSite) {
  const std::string path = testing::TempDir() + "/at_file_site_test";
  const std::string other = path + ".other";
  unlink(path.c_str());
  int fd = -1;
  char byte = 0;
  const std::vector<std::function<void()>> calls = {
      [&] {
        fd =
            file_calls::Open(kJobLog, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      },
      [&] { file_calls::Allocate(kJobLog, fd, 4096); },
      [&] { file_calls::Write(kJobLog, fd, "a", 1); },
      [&] { file_calls::WriteAt(kJobLog, fd, "a", 1, 0); },
      [&] { file_calls::Read(kJobLog, fd, &byte, 1); },
      [&] { file_calls::Sync(kJobLog, fd); },
      [&] { file_calls::SyncData(kJobLog, fd); },
      [&] { file_calls::Rename(kJobLog, path, other, 0); },
      [&] { file_calls::RenameAt(kJobLog, AT_FDCWD, other, path, 0); },
      [&] { file_calls::Unlink(kJobLog, path); },
      [&] { file_calls::MakeFolder(kJobLog, path, 0700); },
      [&] { file_calls::UnlinkAt(kJobLog, AT_FDCWD, path, AT_REMOVEDIR); },
      [&] { file_calls::MakeFolderAt(kJobLog, AT_FDCWD, path, 0700); },
      [&] { file_calls::UnlinkAt(kJobLog, AT_FDCWD, path, AT_REMOVEDIR); },
      [&] { file_calls::OpenAt(kJobLog, AT_FDCWD, path, O_RDONLY, 0); },
      [&] { file_calls::Bind(kJobLog, -1, nullptr, 0); },
      [&] { file_calls::Discard(kJobLog, path); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    told.clear();
    calls[i]();
    EXPECT_EQ(told, (std::vector<std::string>{"job.log", ""})) << i;
  }
  close(fd);
}

}  // namespace
}  // namespace roundhouse
