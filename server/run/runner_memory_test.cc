// JobRunner: memory whose pages take time to come and to go.
#include "absl/strings/match.h"
#include "server/run/runner_test_fixture.h"

namespace roundhouse {
namespace {

class RunnerMemoryTest : public RunnerTest {
 protected:
  void UseArena(FreedPages freed) {
    Fresh();
    arena_ = *HostArena::Create(
        64 << 20, kDevices + 2,
        {.freed = freed, .loop = loop_.get(), .background_bytes = 4096});
  }
};

TEST_F(RunnerMemoryTest, AJobBeginsWhenItsPagesAreThere) {
  for (const FreedPages freed : {FreedPages::kReturned, FreedPages::kKept}) {
    UseArena(freed);
    Run("max_steps: 3");
    EXPECT_EQ(outcome_.state, JobState::kSucceeded) << outcome_.message;
    EXPECT_EQ(steps_, (std::vector<int64_t>{1, 2, 3}));
  }
}

TEST_F(RunnerMemoryTest, AJobThatIsCancelledBeforeLeavesNothing) {
  for (const FreedPages freed : {FreedPages::kReturned, FreedPages::kKept}) {
    UseArena(freed);
    // As soon as it has its ranges, whose pages the loop has no news of yet.
    on_note_ = [this](const std::string& text) {
      if (absl::StartsWith(text, "plan: ")) {
        loop_->After(absl::ZeroDuration(), [this] { runner_->Cancel(); });
      }
    };
    Run("max_steps: 3");
    EXPECT_EQ(outcome_.state, JobState::kCancelled) << outcome_.message;
    EXPECT_TRUE(steps_.empty());
  }
}

}  // namespace
}  // namespace roundhouse
