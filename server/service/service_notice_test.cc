#include "server/service/service_notice.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/files/descriptor.h"
#include "base/manual_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/loop/event_loop.h"

namespace roundhouse {
namespace {

using testing::ElementsAre;

constexpr absl::Duration kWatchdog = absl::Seconds(30);

class ServiceNoticeTest : public testing::Test {
 protected:
  NoticeOptions Options(absl::Duration watchdog) {
    return {.send =
                [this](const std::string& lines, Arrive) {
                  if (!reads_) return false;
                  sent_.push_back(lines);
                  return true;
                },
            .watchdog = watchdog};
  }
  // Each step in a turn of its own, after the timers that are due by then.
  void RunSteps(const std::vector<std::function<void()>>& steps) {
    size_t next = 0;
    std::function<void()> step = [&] {
      if (next == steps.size()) return loop_->Quit();
      steps[next++]();
      ASSERT_TRUE(loop_->Post(step).ok());
    };
    ASSERT_TRUE(loop_->Post(step).ok());
    loop_->Run();
  }
  int64_t Count(const std::string& line) const {
    return std::count(sent_.begin(), sent_.end(), line);
  }
  int64_t fed() const { return Count("WATCHDOG=1"); }

  ManualClock clock_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_);
  std::vector<std::string> sent_;
  bool reads_ = true;  // the manager
};

TEST_F(ServiceNoticeTest, NothingIsSentBeforeItServes) {
  ServiceNotice notice(*loop_, Options(kWatchdog));
  RunSteps({[&] { clock_.Advance(10 * kWatchdog); },
            [&] { EXPECT_THAT(sent_, ElementsAre()); },
            [&] { notice.Ready("serving\non two lines"); }});
  EXPECT_THAT(
      sent_, ElementsAre("READY=1\nSTATUS=serving on two lines", "WATCHDOG=1"));
}

TEST_F(ServiceNoticeTest, TheWatchdogIsFedAtHalfOfItsTime) {
  ServiceNotice notice(*loop_, Options(kWatchdog));
  notice.Ready("serving");
  RunSteps({[&] { clock_.Advance(kWatchdog / 2 - absl::Nanoseconds(1)); },
            [&] {
              EXPECT_EQ(fed(), 1);
              clock_.Advance(absl::Nanoseconds(1));
            },
            [&] {
              EXPECT_EQ(fed(), 2);
              clock_.Advance(kWatchdog / 2);
            },
            [&] { EXPECT_EQ(fed(), 3); }});
}

TEST_F(ServiceNoticeTest, ALoopThatIsStuckFeedsNothing) {
  ServiceNotice notice(*loop_, Options(kWatchdog));
  notice.Ready("serving");
  RunSteps(
      {[&] {
         // As long as this runs no other closure does.
         for (int i = 0; i < 20; ++i) {
           clock_.Advance(kWatchdog);
           EXPECT_EQ(fed(), 1);
         }
       },
       [&] { EXPECT_EQ(fed(), 2) << "once, not for the time it was stuck"; }});
}

TEST_F(ServiceNoticeTest, AManagerThatTookNothingIsFedAgainSoon) {
  ServiceNotice notice(*loop_, Options(kWatchdog));
  notice.Ready("serving");
  RunSteps({[&] {
              reads_ = false;
              clock_.Advance(kWatchdog / 2);
            },
            [&] {
              EXPECT_EQ(fed(), 1);
              reads_ = true;
              clock_.Advance(kWatchdog / 8);
            },
            [&] { EXPECT_EQ(fed(), 2); }});
}

TEST_F(ServiceNoticeTest, WithoutAWatchdogNothingIsFed) {
  ServiceNotice notice(*loop_, Options(absl::ZeroDuration()));
  notice.Ready("serving");
  RunSteps({[&] { clock_.Advance(absl::Hours(1)); },
            [&] { notice.SetStatus("still serving"); }});
  EXPECT_THAT(sent_,
              ElementsAre("READY=1\nSTATUS=serving", "STATUS=still serving"));
}

TEST_F(ServiceNoticeTest, WhoStopsAsksForTimeAgainAndAgain) {
  auto notice =
      std::make_unique<ServiceNotice>(*loop_, Options(absl::ZeroDuration()));
  const std::string extend = "EXTEND_TIMEOUT_USEC=60000000";
  RunSteps({[&] { notice->Stopping("a step ends first"); },
            [&] {
              EXPECT_EQ(Count("STOPPING=1\nSTATUS=a step ends first"), 1);
              EXPECT_EQ(Count(extend), 1);
              clock_.Advance(kStopStep);
            },
            [&] {
              EXPECT_EQ(Count(extend), 2);
              notice.reset();
              clock_.Advance(10 * kStopStep);
            },
            [&] { EXPECT_EQ(Count(extend), 2); }});
}

// libsystemd's own sender, to a socket of ours.
TEST_F(ServiceNoticeTest, TheEnvironmentSaysWhereAndHowOften) {
  char folder[] = "/tmp/rh_notice.XXXXXX";  // short: a socket's path is
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = absl::StrCat(folder, "/s");
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX};
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address),
                 sizeof(address)),
            0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
  const NoticeOptions options = SystemNotices();
  EXPECT_EQ(options.watchdog, absl::Seconds(3));
  EXPECT_TRUE(options.send("READY=1", Arrive::kMust));
  char text[64] = "";
  EXPECT_EQ(recv(socket.get(), text, sizeof(text), MSG_DONTWAIT), 7);
  EXPECT_STREQ(text, "READY=1");
  // A manager that reads nothing keeps nobody waiting, and takes more later.
  int taken = 0;
  while (taken < 10'000 && options.send("WATCHDOG=1", Arrive::kMay)) ++taken;
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 10'000);
  EXPECT_EQ(recv(socket.get(), text, sizeof(text), MSG_DONTWAIT), 10);
  EXPECT_TRUE(options.send("WATCHDOG=1", Arrive::kMay));
  while (recv(socket.get(), text, sizeof(text), MSG_DONTWAIT) > 0) {
  }
  // Another process's, and none.
  setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(SystemNotices().watchdog, absl::ZeroDuration());
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  unsetenv("WATCHDOG_PID");
  EXPECT_EQ(SystemNotices().watchdog, absl::ZeroDuration());
  EXPECT_TRUE(SystemNotices().send("READY=1", Arrive::kMust));
  EXPECT_EQ(recv(socket.get(), text, sizeof(text), MSG_DONTWAIT), -1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace roundhouse
