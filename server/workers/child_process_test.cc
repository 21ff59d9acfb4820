#include "server/workers/child_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace roundhouse {
namespace {

struct Outcome {
  std::string exit;
  std::string output;
  std::string errors;
};

Outcome RunShell(ChildOptions options, int kill_signal = 0) {
  auto loop = *EventLoop::Create();
  Outcome outcome;
  options.program = "/bin/bash";
  options.capture_stdout = true;
  auto child = ChildProcess::Start(
      *loop, options,
      [&](int status) {
        outcome.exit = DescribeExit(status);
        loop->Quit();
      },
      [&](const std::string& text) { outcome.output += text; });
  EXPECT_TRUE(child.ok()) << child.status();
  if (kill_signal != 0) (*child)->Kill(kill_signal);
  loop->Run();
  outcome.errors = (*child)->stderr_tail();
  return outcome;
}

TEST(ChildProcessTest, ReportsOutputAndStatus) {
  const Outcome outcome =
      RunShell({.arguments = {"-c", "echo out; echo err >&2; exit 3"}});
  EXPECT_EQ(outcome.exit, "exited with status 3");
  EXPECT_EQ(outcome.output, "out\n");
  EXPECT_EQ(outcome.errors, "err\n");
}

TEST(ChildProcessTest, ReportsTheSignal) {
  const Outcome outcome = RunShell({.arguments = {"-c", "kill -9 $$"}});
  EXPECT_EQ(outcome.exit, "killed by signal 9");
  EXPECT_EQ(RunShell({.arguments = {"-c", "exec sleep 100"}}, SIGKILL).exit,
            "killed by signal 9");
}

TEST(ChildProcessTest, KeepsTheEndOfLongStderr) {
  const Outcome outcome = RunShell(
      {.arguments = {"-c",
                     "i=0; while [ $i -lt 3000 ]; do echo line-$i >&2; "
                     "i=$((i+1)); done"}});
  EXPECT_EQ(outcome.errors.size(), kStderrTailBytes);
  EXPECT_NE(outcome.errors.find("line-2999\n"), std::string::npos);
}

TEST(ChildProcessTest, InheritsExactlyWhatItIsGiven) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const int leak = dup(0);
  const Outcome outcome =
      RunShell({.arguments = {"-c",
                              "echo hello >&3; ls /proc/self/fd | wc -l; "
                              "echo $SECRET"},
                .environment = {"PATH=/usr/bin:/bin", "SECRET=known"},
                .descriptors = {pipe_fds[1]}});
  char buffer[16] = {};
  ASSERT_EQ(read(pipe_fds[0], buffer, sizeof(buffer)), 6);
  EXPECT_STREQ(buffer, "hello\n");
  // 0, 1, 2, 3 and the directory that ls has open.
  EXPECT_EQ(outcome.output, "5\nknown\n");
  close(leak);
}

TEST(ChildProcessTest, MissingProgramIsAnError) {
  auto loop = *EventLoop::Create();
  ChildOptions options;
  options.program = "/nonexistent/roundhouse-worker";
  const auto child = ChildProcess::Start(*loop, options, [](int) {});
  EXPECT_FALSE(child.ok());
  EXPECT_NE(child.status().message().find("/nonexistent/roundhouse-worker"),
            std::string::npos);
}

TEST(ChildProcessTest, DestructionKillsAndReaps) {
  auto loop = *EventLoop::Create();
  ChildOptions options;
  options.program = "/bin/bash";
  options.arguments = {"-c", "exec sleep 1000"};
  auto child = *ChildProcess::Start(*loop, options, [](int) { FAIL(); });
  const pid_t pid = child->pid();
  child.reset();
  EXPECT_EQ(kill(pid, 0), -1);
}

// Quits the loop when this process, which is the parent of what its children
// leave, has no children.
void QuitWithoutChildren(EventLoop& loop) {
  siginfo_t any;
  if (waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) < 0) {
    return loop.Quit();
  }
  loop.After(absl::Milliseconds(1), [&loop] { QuitWithoutChildren(loop); });
}

// Starts three processes and says so.
ChildOptions WithChildren(const std::string& then) {
  return {
      .program = "/bin/bash",
      .arguments = {"-c",
                    "for i in 1 2 3; do sleep 1000 & done; echo up; " + then},
      .capture_stdout = true,
      .ends_group = true};
}

TEST(ChildProcessTest, WhatAChildStartedEndsWithItAndIsReaped) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  for (const bool killed : {false, true}) {
    auto loop = *EventLoop::Create();
    std::unique_ptr<ChildProcess> child;
    child = *ChildProcess::Start(
        *loop, WithChildren(killed ? "wait" : "exit"),
        [&](int) { QuitWithoutChildren(*loop); },
        [&](const std::string&) {
          if (killed) child->Kill(SIGKILL);
        });
    const pid_t group = child->pid();
    loop->Run();
    EXPECT_EQ(kill(-group, 0), -1);
  }
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST(ChildProcessTest, DestructionEndsWhatItStarted) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  auto loop = *EventLoop::Create();
  std::unique_ptr<ChildProcess> child;
  pid_t group = -1;
  child = *ChildProcess::Start(
      *loop, WithChildren("wait"), [](int) { FAIL(); },
      [&](const std::string&) {
        loop->After(absl::ZeroDuration(), [&] {
          group = child->pid();
          child.reset();
          QuitWithoutChildren(*loop);
        });
      });
  loop->Run();
  EXPECT_EQ(kill(-group, 0), -1);
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

// Runs its body with so few descriptors left.
void WithDescriptorsLeft(int left, const std::function<void()>& body) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  rlimit few = before;
  few.rlim_cur = next + left;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  body();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(ChildProcessTest, WithoutDescriptorsItCanBeTriedAgain) {
  auto loop = *EventLoop::Create();
  ChildOptions options;
  options.program = "/bin/bash";
  options.arguments = {"-c", "true"};
  options.capture_stdout = true;
  options.descriptors = {0, 0};
  int started = 0;
  for (int left = 0; left < 16; ++left) {
    WithDescriptorsLeft(left, [&] {
      const auto child = ChildProcess::Start(*loop, options, [](int) {});
      started += child.ok();
      if (!child.ok()) {
        EXPECT_TRUE(absl::IsUnavailable(child.status())) << child.status();
      }
    });
  }
  // Both ends were met, and nothing was left open or running.
  EXPECT_GT(started, 0);
  EXPECT_LT(started, 12);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  WithDescriptorsLeft(16, [&] {
    EXPECT_TRUE(ChildProcess::Start(*loop, options, [](int) {}).ok());
  });
}

TEST(ChildProcessTest, SaysHowManyDescriptorsAreLeft) {
  WithDescriptorsLeft(5, [] {
    EXPECT_TRUE(CheckDescriptorsLeft(5).ok());
    EXPECT_TRUE(absl::IsUnavailable(CheckDescriptorsLeft(6)));
    EXPECT_TRUE(CheckDescriptorsLeft(5).ok());  // it keeps none
  });
}

}  // namespace
}  // namespace roundhouse
