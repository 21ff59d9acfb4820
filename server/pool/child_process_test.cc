#include "server/pool/child_process.h"

#include <signal.h>
#include <unistd.h>

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

}  // namespace
}  // namespace roundhouse
