#include "base/files/open_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/files/checked_file.h"
#include "base/files/descriptor.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

// No call of these tests comes back by itself, however long it is waited for.
constexpr OpenLimit::Limits kShort = {.wait = absl::Milliseconds(1),
                                      .wait_at_end = absl::Milliseconds(1),
                                      .most_hanging = 3};

// Opens /dev/null once somebody lets it.
struct Blocked {
  absl::Notification begun, let_go;
  std::atomic<int> calls{0};
};

std::function<int()> Opening(const std::shared_ptr<Blocked>& blocked) {
  return [blocked] {
    if (++blocked->calls == 1) blocked->begun.Notify();
    blocked->let_go.WaitForNotification();
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
  };
}

// The threads have nothing that a test could join.
void WaitForNone(const OpenLimit& limit) {
  while (limit.hanging() > 0) std::this_thread::yield();
}

TEST(OpenLimitTest, SaysWhatTheCallSays) {
  OpenLimit limit({});
  const Descriptor opened(
      limit.Open("a", [] { return open("/dev/null", O_RDONLY | O_CLOEXEC); }));
  EXPECT_GE(opened.get(), 0);
  EXPECT_EQ(limit.Open("b", [] { return open("/no/such/file", O_RDONLY); }),
            -1);
  EXPECT_EQ(errno, ENOENT);
  const auto made = std::make_shared<std::string>();
  EXPECT_TRUE(limit.Call("c", [made] { *made = "made"; }));
  EXPECT_EQ(*made, "made");
  EXPECT_EQ(limit.hanging(), 0);
}

TEST(OpenLimitTest, OneThatHangsIsGivenUpAndItsPathRefusedUntilItIsOver) {
  OpenLimit limit(kShort);
  const auto blocked = std::make_shared<Blocked>();
  while (limit.hanging() == 0) {  // a thread may begin with it too late
    EXPECT_EQ(limit.Open("/mnt/dead", Opening(blocked)), -1);
    EXPECT_EQ(errno, kOpenHangs);
  }
  EXPECT_EQ(limit.Open("/mnt/dead", Opening(blocked)), -1);
  EXPECT_EQ(errno, kOpenHangs);
  EXPECT_EQ(blocked->calls, 1) << "a path takes more than one thread";
  EXPECT_FALSE(limit.Call("/mnt/dead", [] { ADD_FAILURE(); }));
  blocked->let_go.Notify();
  WaitForNone(limit);
  // Not within a millisecond, on a busy machine.
  OpenLimit patient({});
  EXPECT_TRUE(patient.Call("/mnt/dead", [] {}));
}

TEST(OpenLimitTest, OnlySoManyStayBehind) {
  OpenLimit limit(kShort);
  const auto blocked = std::make_shared<Blocked>();
  for (const char* path : {"1", "2", "3"}) {
    while (limit.Open(path, Opening(blocked)) == -1 &&
           limit.hanging() < path[0] - '0') {
      // Given up before a thread had begun with it.
    }
  }
  EXPECT_EQ(limit.hanging(), 3);
  EXPECT_FALSE(limit.Call("4", [] { ADD_FAILURE() << "one thread more"; }));
  EXPECT_EQ(errno, kOpenHangs);
  blocked->let_go.Notify();
  WaitForNone(limit);
}

TEST(OpenLimitTest, WhoEndsDoesNotWait) {
  OpenLimit limit(
      {.wait = absl::InfiniteDuration(), .wait_at_end = absl::Milliseconds(1)});
  const auto blocked = std::make_shared<Blocked>();
  std::thread caller([&] {
    EXPECT_EQ(limit.Open("/mnt/dead", Opening(blocked)), -1);
    EXPECT_EQ(errno, kOpenHangs);
  });
  blocked->begun.WaitForNotification();
  limit.Hurry();
  caller.join();
  blocked->let_go.Notify();
  WaitForNone(limit);
}

TEST(OpenLimitTest, ItMayGoWhileThreadsHang) {
  const auto blocked = std::make_shared<Blocked>();
  auto limit = std::make_unique<OpenLimit>(kShort);
  EXPECT_EQ(limit->Open("/mnt/dead", Opening(blocked)), -1);
  limit.reset();
  blocked->let_go.Notify();
}

// The kernel itself holds the thread.
TEST(OpenLimitTest, AFifoWithoutWriterIsGivenUpAndClosedWhenOneComes) {
  const std::string path = testing::TempDir() + "/open_limit_test.fifo";
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  OpenLimit limit(kShort);
  while (limit.hanging() == 0) {
    EXPECT_EQ(limit.Open(path, [path] { return open(path.c_str(), O_RDONLY); }),
              -1);
    EXPECT_EQ(errno, kOpenHangs);
  }
  // Waits for the reader in the kernel.
  const Descriptor writer(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_GE(writer.get(), 0);
  WaitForNone(limit);
  signal(SIGPIPE, SIG_IGN);
  while (write(writer.get(), "x", 1) == 1) {
    std::this_thread::yield();  // the reader is not closed yet
  }
  EXPECT_EQ(errno, EPIPE);
}

TEST(OpenLimitTest, AnErrorNamesTheSeconds) {
  EXPECT_TRUE(absl::StrContains(OpenErrorText(kOpenHangs), "within 20 s"))
      << OpenErrorText(kOpenHangs);
  EXPECT_EQ(OpenErrorText(ENOENT), "No such file or directory");
  EXPECT_TRUE(IsOpenHang(absl::UnavailableError("/mnt/dead: can't be opened: " +
                                                OpenErrorText(kOpenHangs))));
  EXPECT_FALSE(IsOpenHang(absl::UnavailableError(OpenErrorText(EMFILE))));
  EXPECT_FALSE(IsOpenHang(absl::OkStatus()));
}

// Last: it cannot be taken back.
TEST(OpenLimitTest, CheckedFilesAreOpenedAsWithoutLimits) {
  LimitOpens();
  const std::string folder = testing::TempDir();
  const std::string path = folder + "/open_limit_test.file";
  {
    const Descriptor file(
        open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    ASSERT_EQ(write(file.get(), "text", 4), 4);
  }
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  const auto opened =
      OpenChecked({.root = "", .path = path, .identity = IdentityOf(info)});
  ASSERT_TRUE(opened.ok()) << opened.status();
  char text[8];
  EXPECT_EQ(read(opened->get(), text, sizeof(text)), 4);
  const auto missing = OpenChecked({.root = "", .path = path + ".none"});
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  const Descriptor root(open(folder.c_str(), O_PATH | O_CLOEXEC));
  const Descriptor place =
      OpenBeneath(root.get(), "open_limit_test.file", Links::kBeneath);
  EXPECT_GE(place.get(), 0);
  EXPECT_EQ(OpenBeneath(root.get(), "../x", Links::kBeneath).get(), -1);
  EXPECT_EQ(errno, EXDEV);
  HurryOpens();
}

}  // namespace
}  // namespace roundhouse
