#include "worker/probe/process_facts.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace roundhouse::worker {
namespace {

// A child that waits until it is killed.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) pause();
    }
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Kill() {
    if (!dead_) kill(pid_, SIGKILL);
    dead_ = true;
  }
  void Reap() const { EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_); }

 private:
  const pid_t pid_;
  bool dead_ = false;
};

TEST(ProcessFactsTest, OfThisProcess) {
  ASSERT_EQ(prctl(PR_SET_NAME, "odd ) (name"), 0);
  const auto facts = FactsOf(getpid());
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->parent, getppid());
  EXPECT_EQ(facts->uid, getuid());
  EXPECT_EQ(facts->name, "odd ) (name");
}

TEST(ProcessFactsTest, DescentIsOfAnyDepth) {
  Child child;
  EXPECT_TRUE(DescendsFrom(child.pid(), child.pid()));
  EXPECT_TRUE(DescendsFrom(child.pid(), getpid()));
  EXPECT_TRUE(DescendsFrom(child.pid(), getppid()));
  EXPECT_FALSE(DescendsFrom(getpid(), child.pid()));
  // One that is dead and not reaped yet is still its parent's.
  child.Kill();
  EXPECT_TRUE(DescendsFrom(child.pid(), getpid()));
  child.Reap();
  EXPECT_FALSE(FactsOf(child.pid()).has_value());
  EXPECT_FALSE(DescendsFrom(child.pid(), getpid()));
}

TEST(ProcessFactsTest, NoIdsAreNoProcesses) {
  for (const pid_t pid : {0, -1}) {
    EXPECT_FALSE(FactsOf(pid).has_value());
    EXPECT_FALSE(DescendsFrom(pid, getpid()));
  }
}

}  // namespace
}  // namespace roundhouse::worker
