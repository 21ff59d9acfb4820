// The daemon's side over a real nursery (tests/fakes/wire_worker.cc).
#include "server/workers/nursery.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

constexpr char kFakeWorker[] = "tests/fakes/wire_worker";

class NurseryTest : public testing::Test {
 protected:
  NurseryTest() : loop_(*EventLoop::Create()) {
    options_.program = kFakeWorker;
  }

  // The nursery is this line of shell from now on.
  void UseScript(const std::string& line) {
    options_.program = testing::TempDir() + "/nursery.sh";
    std::ofstream(options_.program) << "#!/bin/sh\n" << line << "\n";
    EXPECT_EQ(chmod(options_.program.c_str(), 0700), 0);
  }

  // Asks for a process that ends at once, because it has no channel; then calls
  // `then`, or ends the loop when the last one asked for is answered.
  void Spawn(Nursery& nursery, std::function<void()> then = nullptr) {
    ++asked_;
    const absl::Status asked = nursery.Spawn(
        {{"--role=host", "--index=3"}, {STDERR_FILENO, STDERR_FILENO}},
        [this, then](const absl::StatusOr<pid_t>& pid) {
          answers_.push_back(pid);
          if (then) then();
          if (answers_.size() == asked_) loop_->Quit();
        });
    EXPECT_TRUE(asked.ok()) << asked;
  }

  NurseryOptions options_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<absl::StatusOr<pid_t>> answers_;
  size_t asked_ = 0;
};

TEST_F(NurseryTest, WhatItForksAreOurChildren) {
  {
    Nursery nursery(*loop_, options_);
    EXPECT_EQ(nursery.pid(), 0);
    for (int i = 0; i < 3; ++i) Spawn(nursery);
    EXPECT_GT(nursery.pid(), 0);
    loop_->Run();
  }
  for (const auto& pid : answers_) {
    ASSERT_TRUE(pid.ok()) << pid.status();
    int status = 0;
    EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
  }
}

TEST_F(NurseryTest, OneThatDiedIsStartedByTheNextRequest) {
  UseScript("exec sleep 1000");  // it must not answer before it is killed
  Nursery nursery(*loop_, options_);
  // Not from within the answer: it comes while the dead one is cleared away.
  Spawn(nursery, [&] {
    ++asked_;
    UseScript(absl::StrCat("exec '", std::filesystem::current_path().string(),
                           "/", kFakeWorker, "' \"$@\""));
    loop_->After(absl::ZeroDuration(), [&] {
      --asked_;
      EXPECT_EQ(nursery.pid(), 0);
      Spawn(nursery);
      EXPECT_GT(nursery.pid(), 0);
    });
  });
  kill(nursery.pid(), SIGKILL);
  loop_->Run();
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[0].status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(answers_[0].status().message(),
                                "nursery killed by signal 9"))
      << answers_[0].status();
  ASSERT_TRUE(answers_[1].ok()) << answers_[1].status();
  int status = 0;
  EXPECT_EQ(waitpid(*answers_[1], &status, 0), *answers_[1]);
}

TEST_F(NurseryTest, OneThatDoesNotAnswerIsKilled) {
  UseScript("exec sleep 1000");
  options_.answer_limit = absl::Milliseconds(1);
  Nursery nursery(*loop_, options_);
  Spawn(nursery);
  loop_->Run();
  EXPECT_TRUE(absl::StrContains(answers_[0].status().message(),
                                "nursery killed by signal 9"))
      << answers_[0].status();
}

TEST_F(NurseryTest, WhyItEndedIsSaid) {
  options_.program = "/bin/sh";  // knows no such flags
  Nursery nursery(*loop_, options_);
  Spawn(nursery);
  Spawn(nursery);
  loop_->Run();
  for (const auto& answer : answers_) {
    EXPECT_TRUE(absl::StrContains(answer.status().message(),
                                  "nursery exited with status 2"))
        << answer.status();
    EXPECT_TRUE(absl::StrContains(answer.status().message(), "Illegal option"));
  }
}

TEST_F(NurseryTest, AMissingProgramIsNamed) {
  options_.program = "/no/such/program";
  Nursery nursery(*loop_, options_);
  const absl::Status started = nursery.Start();
  EXPECT_TRUE(absl::StrContains(started.message(), "/no/such/program"));
  EXPECT_EQ(nursery.Spawn({{"--role=host"}, {}}, [](auto) {}), started);
}

TEST_F(NurseryTest, RequestsOverTheLimitsAreRefused) {
  Nursery nursery(*loop_, options_);
  const absl::Status asked = nursery.Spawn(
      {{std::string(wire::kMaxSpawnBytes, 'a')}, {}}, [](auto) { FAIL(); });
  EXPECT_EQ(asked.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace roundhouse
