// Runs an event loop under the guard: what it opens ends the test.
#include "server/admission/job_opener.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/admission/admission_test_fixture.h"

namespace roundhouse {
namespace {

class JobOpenerTest : public AdmissionTest {
 protected:
  // Calls `step` again and again, as StartNext is called, until it is true.
  void RunUntil(std::function<bool()> step) {
    step_ = std::move(step);
    loop_->After(absl::ZeroDuration(), [this] { Again(); });
    loop_->Run();
  }
  void Again() {
    if (step_ != nullptr && step_()) {
      step_ = nullptr;
      loop_->Quit();
    }
  }

  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  JobLog log_{*loop_};
  std::function<bool()> step_;
  std::vector<std::string> warnings_;
  // What becomes of the warnings' `then`.
  std::function<void(std::function<void()>)> told_ =
      [](const std::function<void()>& then) { then(); };
  JobOpener opener_{{.loop = *loop_,
                     .store = *store_,
                     .admitted = admission_->admitted(),
                     .helpers = admission_->helpers(),
                     .roots = admission_->roots(),
                     .hub = admission_->names().hub(),
                     .paths = admission_->paths(),
                     .log = log_},
                    {.warn =
                         [this](const JobRecord&, const std::string& what,
                                std::function<void()> then) {
                           warnings_.push_back(what);
                           told_(std::move(then));
                         },
                     .again = [this] { Again(); }}};
};

TEST_F(JobOpenerTest, AJobOfAnEarlierDaemonIsReadBesideTheLoop) {
  const JobRecord job = Store(*Check(kJob));
  RunUntil([&] {
    const auto found = opener_.Find(job.id);
    if (!found.has_value()) return false;
    EXPECT_TRUE(found->ok()) << found->status();
    return true;
  });
  EXPECT_NE(admission_->admitted().Kept(job.id), nullptr);
}

TEST_F(JobOpenerTest, OneWhoseModelWentFailsAsItStarts) {
  const JobRecord job = Store(*Check(kJob));
  std::filesystem::remove_all(root_ + "/data/m");
  RunUntil([&] {
    const auto found = opener_.Find(job.id);
    if (!found.has_value()) return false;
    EXPECT_FALSE(found->ok());
    return true;
  });
}

TEST_F(JobOpenerTest, OneWithoutItsDataIsNotOpened) {
  const JobRecord job = Store(*Check(kJob));
  WriteTestFile(root_ + "/helper",
                "echo '{\"error\": \"it is bad\"}' >&2; exit 3\n");
  std::optional<OpenedJob> opened;
  RunUntil([&] {
    opened = opener_.Take(job.id);
    return opened.has_value();
  });
  EXPECT_FALSE(opened->data.ok());
  EXPECT_FALSE(opened->files.ok()) << "nothing comes after what failed";
}

// The job is paused while its damaged data are about to be prepared again: the
// next time it is to start they are still damaged, and that is told.
TEST_F(JobOpenerTest, DamageIsToldBeforeItIsMended) {
  const JobRecord job = Store(*Check(kJob));
  WriteTestFile(root_ + "/helper", "echo x >>" + root_ + "/runs; exit 3\n");
  told_ = [this](const std::function<void()>&) {
    loop_->After(absl::ZeroDuration(), [this] { loop_->Quit(); });
  };
  opener_.Take(job.id);
  loop_->Run();
  opener_.Forget(job.id);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(
      absl::StrContains(warnings_[0], "the prepared data were damaged: "))
      << warnings_[0];
  EXPECT_FALSE(std::filesystem::exists(root_ + "/runs"))
      << "mended, though nobody was told";
}

TEST_F(JobOpenerTest, AJobThatIsNotThereSaysSoAtOnce) {
  const std::optional<OpenedJob> opened = opener_.Take("job-99");
  ASSERT_TRUE(opened.has_value());
  EXPECT_TRUE(absl::IsNotFound(opened->files.status()))
      << opened->files.status();
}

TEST_F(JobOpenerTest, NothingFollowsForOneThatIsForgotten) {
  const JobRecord job = Store(*Check(kJob));
  EXPECT_FALSE(opener_.Find(job.id).has_value());
  opener_.Forget(job.id);
  bool again = false;
  step_ = [&] { return again = true; };
  loop_->After(absl::Milliseconds(1), [this] { loop_->Quit(); });
  loop_->Run();
  EXPECT_FALSE(again);
}

}  // namespace
}  // namespace roundhouse
