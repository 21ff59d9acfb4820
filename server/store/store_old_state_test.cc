// The job store of an older commit, as its daemon left it when it was killed,
// opened and used by this one (tests/state/make_state.py says what is in it).
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "base/status.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/store/store.h"
#include "server/store/store_schema.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using S = JobState;

constexpr char kState[] = "tests/state/b98b8c3";

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return nlohmann::json::parse(text.str());
}

class OldStateTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) / "rh_old_state";
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    fs::copy_file(fs::path(kState) / "state/jobs.db", dir_ / "jobs.db");
    fs::permissions(dir_ / "jobs.db", fs::perms::owner_write,
                    fs::perm_options::add);
    Open();
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(dir_);
  }
  void Open() {
    store_.reset();
    StoreOptions options{.path = dir_ / "jobs.db"};
    // Within the days in which its requests are remembered.
    options.now = [] { return absl::FromUnixSeconds(1795640000); };
    auto store = JobStore::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    EXPECT_TRUE(store_->findings().empty()) << store_->findings()[0];
  }

  fs::path dir_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(OldStateTest, EveryJobIsThere) {
  const std::map<std::string, S> states = {
      {"job-1", S::kSucceeded}, {"job-2", S::kFailed},
      {"job-3", S::kCancelled}, {"job-4", S::kPaused},
      {"job-5", S::kRunning},   {"job-6", S::kQueued}};
  const auto requests = ReadJson(std::string(kState) + "/requests.json");
  EXPECT_EQ(store_->List({}, std::nullopt, 100)->jobs.size(), 6u);
  EXPECT_EQ(*store_->Revision(), 34);
  for (const auto& [id, state] : states) {
    const auto job = store_->Get(id);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->state, state);
    EXPECT_EQ(job->uid, requests[id]["uid"]);
    EXPECT_EQ(job->owner, "local");
    EXPECT_EQ(job->project, "default");
    EXPECT_EQ(nlohmann::json::parse(job->resolved)["model_name_or_path"],
              "/state-test/data/model");
    EXPECT_GT(store_->ListEvents(id, 0, 100)->events.size(), 1u);
  }
  EXPECT_EQ(store_->Get("job-2")->reason, JobReason::kInvalidDataset);
  EXPECT_EQ(*store_->FindOutputName("first"), "job-1");
  const auto checkpoints = store_->ListCheckpoints("job-4");
  ASSERT_EQ(checkpoints->size(), 1u);
  EXPECT_EQ((*checkpoints)[0].step, store_->Get("job-4")->progress.step);
  EXPECT_EQ((*checkpoints)[0].path, store_->Get("job-4")->last_checkpoint_path);
}

TEST_F(OldStateTest, ARetriedRequestIsTheSameJobWhoeverItsPrincipalIsNow) {
  const auto requests = ReadJson(std::string(kState) + "/requests.json");
  ASSERT_EQ(requests.size(), 6u);
  for (const auto& [id, request] : requests.items()) {
    const std::string request_id = request["request_id"];
    const std::string text = request["text"];
    for (const std::string principal : {"local", "uid:1000"}) {
      const auto found = store_->FindRequest(principal, request_id, text);
      ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
      EXPECT_EQ((*found)->id, id);
      bool created = true;
      const auto again = store_->Create({.text = text,
                                         .resolved = "{}",
                                         .request_id = request_id,
                                         .principal = principal},
                                        &created);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_FALSE(created);
      EXPECT_EQ(again->uid, request["uid"]);
    }
    EXPECT_FALSE(store_->FindRequest("local", request_id, text + " ").ok());
  }
}

TEST_F(OldStateTest, ItGoesOnFromThere) {
  ASSERT_TRUE(store_->Transition("job-4", S::kQueued, {}).ok());
  ASSERT_TRUE(store_->Transition("job-4", S::kLoading, {}).ok());
  const auto made =
      store_->Create({.text = "t", .resolved = "{}", .principal = "uid:1000"});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->id, "job-7");
  EXPECT_EQ(made->principal, "uid:1000");
  EXPECT_EQ(*store_->Revision(), 37);
  Open();
  EXPECT_EQ(store_->Get("job-4")->attempts, 2);
  EXPECT_EQ(store_->Get("job-7")->uid, made->uid);
  EXPECT_EQ(store_->ChangesAfter(34, "", 10)->size(), 3u);
  EXPECT_EQ(store_->ChangesAfter(0, "", 100)->size(), 37u);
  int64_t used = -1;  // rows of a table that came later
  ASSERT_TRUE(store_
                  ->ReadWith([&used](Database* db) -> absl::Status {
                    ASSIGN_OR_RETURN(
                        used, db->QueryInt("SELECT count(*) FROM usage"));
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(used, 0);
}

}  // namespace
}  // namespace roundhouse
