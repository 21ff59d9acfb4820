#include "server/workers/dispatch_priority.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

int Policy() { return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK; }

// In a thread, so that the test's own stays as it is.
void InThread(const std::function<void()>& body) { std::thread(body).join(); }

// Where that is not permitted nothing changes.
TEST(DispatchPriorityTest, OnlyTheThreadItselfGoesFirst) {
  InThread([] {
    const absl::Status put = PutBeforeCompute(0, DispatchThread::kLoop);
    if (!put.ok()) {
      EXPECT_TRUE(absl::IsPermissionDenied(put)) << put;
      EXPECT_EQ(Policy(), SCHED_OTHER);
      return;
    }
    EXPECT_EQ(Policy(), SCHED_RR);
    sched_param priority;
    ASSERT_EQ(sched_getparam(0, &priority), 0);
    EXPECT_EQ(priority.sched_priority, 2);
    InThread([] { EXPECT_EQ(Policy(), SCHED_OTHER); });
  });
  EXPECT_EQ(Policy(), SCHED_OTHER);
}

TEST(DispatchPriorityTest, WithoutPermissionItSaysSo) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_RTPRIO, &none);
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct nothing[_LINUX_CAPABILITY_U32S_3] = {};
    if (syscall(SYS_capset, &header, nothing) != 0) _exit(3);
    const absl::Status put = PutBeforeCompute(0, DispatchThread::kWorker);
    _exit(absl::IsPermissionDenied(put) && Policy() == SCHED_OTHER ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(DispatchPriorityTest, AThreadThatIsGoneIsNotFound) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(
      absl::IsNotFound(PutBeforeCompute(child, DispatchThread::kWorker)));
}

}  // namespace
}  // namespace roundhouse
