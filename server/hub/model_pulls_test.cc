// Who may pull when, over a hub that answers when the test says.
#include "server/hub/model_pulls.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "server/hub/fake_hub.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

class ModelPullsTest : public testing::Test {
 protected:
  ModelPullsTest() {
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    store_ = *JobStore::Open({.path = dir_ / "jobs.db"});
    uploads_ = *Uploads::Open({.state_dir = dir_}, store_.get());
    hub_.AddModel(1000);
    pulls_ = std::make_unique<ModelPulls>(hub_.Options(), uploads_.get());
  }

  static PullWish Wish(const std::string& owner,
                       const std::string& name = "tiny") {
    return {
        .model = {.id = "org/tiny"},
        .name = name,
        .project = kDefaultProject,
        .owner = owner,
        .reads = [](const std::string&) { return true; },
        .room = [](const NewUpload&, uint64_t) { return absl::OkStatus(); }};
  }
  // The next listing waits until `go_`.
  void Hold() {
    hub_.Next("?blobs=true",
              [this](const FakeHub::Request& request, const std::string& data,
                     const WebSink& sink) {
                go_.WaitForNotification();
                return FakeHub::Whole(request, data, sink);
              });
  }
  absl::StatusOr<PulledModel> End(const std::shared_ptr<PullTask>& task) {
    while (!task->result().has_value()) task->Wait(absl::Milliseconds(1));
    return *task->result();
  }

  std::filesystem::path dir_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Uploads> uploads_;
  absl::Notification go_;
  FakeHub hub_;
  std::unique_ptr<ModelPulls> pulls_;
};

TEST_F(ModelPullsTest, WithoutAHubItSaysWhatAnAdminDoes) {
  ModelPulls none({}, uploads_.get());
  const auto begun = none.Begin(Wish("anna"));
  EXPECT_TRUE(absl::IsFailedPrecondition(begun.status()));
  EXPECT_EQ(ErrorReason(begun.status()), FieldReason::kNotAvailable);
  for (const char* part :
       {"--hub=https://HOST", "/etc/roundhouse/daemon.conf", "docs/admin.md"}) {
    EXPECT_NE(begun.status().message().find(part), std::string::npos) << part;
  }
}

TEST_F(ModelPullsTest, TheUsualNameHasOrgAndName) {
  const auto pulled = End(*pulls_->Begin(Wish("anna", "")));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->record.name, "org--tiny");
  PullWish wish = Wish("anna", "");
  wish.model.id = "org/" + std::string(80, 'x');
  const auto begun = pulls_->Begin(wish);
  EXPECT_TRUE(absl::IsInvalidArgument(begun.status()));
  EXPECT_EQ(ErrorField(begun.status()), "name");
}

TEST_F(ModelPullsTest, OneOfAnOwnerAndTwoInAll) {
  Hold();
  Hold();
  const auto first = pulls_->Begin(Wish("anna"));
  ASSERT_TRUE(first.ok());
  const auto another = pulls_->Begin(Wish("anna", "other"));
  EXPECT_TRUE(absl::IsResourceExhausted(another.status()));
  EXPECT_NE(another.status().message().find("is being pulled for anna already "
                                            "(org/tiny)"),
            std::string::npos)
      << another.status();
  const auto second = pulls_->Begin(Wish("bob"));
  ASSERT_TRUE(second.ok());
  const auto third = pulls_->Begin(Wish("carl"));
  EXPECT_TRUE(absl::IsResourceExhausted(third.status()));
  EXPECT_EQ(ErrorReason(third.status()), FieldReason::kTryLater);
  go_.Notify();
  EXPECT_TRUE(End(*first).ok());
  EXPECT_TRUE(End(*second).ok());
  EXPECT_TRUE(End(*pulls_->Begin(Wish("carl"))).ok());
}

TEST_F(ModelPullsTest, TheSameAgainTakesItOver) {
  Hold();
  const auto first = pulls_->Begin(Wish("anna"));
  ASSERT_TRUE(first.ok());
  // The listing of the first pull is held: the second one's is not.
  while (hub_.requests().empty()) (*first)->Wait(absl::Milliseconds(1));
  const auto second = End(*pulls_->Begin(Wish("anna")));
  EXPECT_TRUE(second.ok()) << second.status();
  go_.Notify();
  const auto taken = End(*first);
  // Whether it saw that it was told to stop, or found all there.
  if (!taken.ok()) {
    EXPECT_TRUE(absl::IsFailedPrecondition(taken.status())) << taken.status();
    EXPECT_NE(taken.status().message().find("was begun again"),
              std::string::npos);
  }
}

TEST_F(ModelPullsTest, PullsThatAreStillEndingAreFewOfAnOwner) {
  for (size_t i = 0; i < kMaxEndingPullsOfOwner; ++i) {
    Hold();
    const auto held = pulls_->Begin(Wish("anna"));
    ASSERT_TRUE(held.ok()) << held.status();
    while (hub_.requests().size() <= i) (*held)->Wait(absl::Milliseconds(1));
    (*held)->Cancel();
  }
  const auto refused = pulls_->Begin(Wish("anna"));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_EQ(ErrorReason(refused.status()), FieldReason::kTryLater);
  EXPECT_NE(refused.status().message().find(
                "an earlier pull of yours is still ending; try again in a "
                "moment"),
            std::string::npos)
      << refused.status();
  EXPECT_TRUE(End(*pulls_->Begin(Wish("bob"))).ok());
  go_.Notify();
}

// Its connections end with it, not with the next pull.
TEST_F(ModelPullsTest, ASourceEndsWithItsPull) {
  struct Counted final : WebSource {
    Counted(std::unique_ptr<WebSource> inner, std::atomic<int>* living)
        : inner(std::move(inner)), living(living) {
      ++*living;
    }
    ~Counted() override { --*living; }
    absl::StatusOr<WebHead> Get(const WebRequest& request,
                                const WebSink& sink) override {
      return inner->Get(request, sink);
    }
    const std::unique_ptr<WebSource> inner;
    std::atomic<int>* const living;
  };
  std::atomic<int> living = 0;
  ModelPullsOptions options = hub_.Options();
  options.make_source =
      [&, make = options.make_source](
          const std::string& token,
          auto stopped) -> absl::StatusOr<std::unique_ptr<WebSource>> {
    return std::make_unique<Counted>(*make(token, stopped), &living);
  };
  ModelPulls pulls(options, uploads_.get());
  EXPECT_TRUE(End(*pulls.Begin(Wish("anna"))).ok());
  EXPECT_EQ(living, 0);
}

TEST_F(ModelPullsTest, ErrorsHaveReasons) {
  PullWish wish = Wish("anna");
  wish.model.id = "org/none";
  const auto pulled = End(*pulls_->Begin(wish));
  EXPECT_TRUE(absl::IsNotFound(pulled.status()));
  EXPECT_EQ(ErrorReason(pulled.status()), FieldReason::kNotFound);
}

TEST_F(ModelPullsTest, ATokenIsReadAnewForEachPull) {
  const std::string path = dir_ / "token";
  ModelPullsOptions options = hub_.Options();
  options.token_file = path;
  ModelPulls pulls(options, uploads_.get());
  const auto begun = pulls.Begin(Wish("anna"));
  EXPECT_TRUE(absl::IsFailedPrecondition(begun.status()));
  // Where it lies is the admin's affair.
  EXPECT_EQ(begun.status().message().find(path), std::string::npos);
  for (const char* token : {"one", "two"}) {
    std::ofstream(path) << token;
    std::filesystem::permissions(path, std::filesystem::perms::owner_read |
                                           std::filesystem::perms::owner_write);
    EXPECT_TRUE(End(*pulls.Begin(Wish("anna"))).ok());
  }
  EXPECT_EQ(hub_.tokens(), (std::vector<std::string>{"one", "two"}));
}

TEST_F(ModelPullsTest, StopEndsAll) {
  Hold();
  const auto task = pulls_->Begin(Wish("anna"));
  ASSERT_TRUE(task.ok());
  go_.Notify();
  pulls_->Stop();
  EXPECT_TRUE((*task)->result().has_value());
  EXPECT_TRUE(absl::IsUnavailable(pulls_->Begin(Wish("bob")).status()));
}

}  // namespace
}  // namespace roundhouse
