// The real probe over a fake NVML, and programs that are no probe.
#include "server/gpu/gpu_events.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace roundhouse {
namespace {

using wire::GpuEvent;

class GpuEventsTest : public testing::Test {
 protected:
  // A program of these lines of shell, which says each of its starts.
  std::string Script(const std::string& lines) const {
    const std::string path = testing::TempDir() + "/watch.sh";
    std::ofstream(path) << "#!/bin/sh\n[ \"$1\" = --watch ] || exit 9\n"
                        << "echo >> " << starts_ << "\n"
                        << lines << "\n";
    EXPECT_EQ(chmod(path.c_str(), 0700), 0);
    return path;
  }
  int Starts() const {
    std::ifstream file(starts_);
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }

  // Until so many events were told, or the program was started so often.
  void Run(const std::string& program, size_t events, int starts) {
    std::remove(starts_.c_str());
    told_.clear();
    const GpuEvents watch(
        *loop_, program,
        [this](const GpuEvent& event) { told_.push_back(event); },
        absl::Milliseconds(1));
    std::function<void()> look = [&] {
      if (told_.size() >= events && Starts() >= starts) return loop_->Quit();
      loop_->After(absl::Milliseconds(1), look);
    };
    look();
    loop_->Run();
  }

  const std::string starts_ = testing::TempDir() + "/starts";
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::vector<GpuEvent> told_;
};

TEST_F(GpuEventsTest, WhatTheDriverReportsIsTold) {
  const std::string answers = testing::TempDir() + "/nvml.txt";
  std::ofstream(answers) << "nvmlDeviceGetCount_v2=2\n"
                            "nvmlDeviceGetUUID.0=GPU-a\n"
                            "nvmlDeviceGetUUID.1=GPU-b\n"
                            "nvmlDeviceRegisterEvents.0=\n"
                            "nvmlDeviceRegisterEvents.1=\n"
                            "nvmlEventSetWait_v2=1 79 0 31\n";
  const std::string root = std::filesystem::current_path().string();
  Run(Script(absl::StrCat("ROUNDHOUSE_FAKE_NVML='", answers, "' exec '", root,
                          "/worker/probe/roundhouse-gpu-probe' \"$1\" "
                          "--library='",
                          root, "/tests/fakes/libfake_nvml.so'")),
      2, 1);
  EXPECT_EQ(told_, (std::vector<GpuEvent>{{"GPU-b", 79}, {"GPU-a", 31}}));
}

TEST_F(GpuEventsTest, OneThatEndsIsStartedAgain) {
  Run(Script("echo roundhouse-gpu-events 1; echo GPU-a xid 13; exit 1"), 3, 3);
  EXPECT_EQ(told_.front(), (GpuEvent{"GPU-a", 13}));
}

// Lines come in pieces; nothing is told of what is no event.
TEST_F(GpuEventsTest, OneThatSpeaksNonsenseIsKilledAndStartedAgain) {
  Run(Script("printf roundhouse-gpu-; echo events 1; printf 'GPU-a x'; "
             "echo id 13; echo what; exec sleep 1000"),
      2, 2);
  Run(Script("echo roundhouse-gpu-events 2; exec sleep 1000"), 0, 2);
  EXPECT_TRUE(told_.empty());
  Run(Script("echo roundhouse-gpu-events 1; head -c 100000 /dev/zero; echo; "
             "exec sleep 1000"),
      0, 2);
  EXPECT_TRUE(told_.empty());
}

TEST_F(GpuEventsTest, OneThatIsNotAbleIsNotStartedAgain) {
  const std::string program = Script("echo no events >&2; exit 2");
  const GpuEvents watch(
      *loop_, program, [](const GpuEvent&) { ADD_FAILURE(); },
      absl::Milliseconds(1));
  std::remove(starts_.c_str());
  // Long enough for the others to have started a hundred times.
  loop_->After(absl::Milliseconds(300), [this] { loop_->Quit(); });
  loop_->Run();
  EXPECT_LE(Starts(), 1);
}

}  // namespace
}  // namespace roundhouse
