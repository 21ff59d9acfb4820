// Power goes at a random change of the store's files, and of what was not
// synced an arbitrary part arrives.  After each cut: no acknowledged job lost,
// none there twice, no state that nobody asked for, and no false alarm.
//
//   ROUNDHOUSE_COUNT  cuts (default 200)
//   ROUNDHOUSE_SEED   of the first run (default 1); run i has seed + i
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/number_from_environment.h"
#include "gtest/gtest.h"
#include "server/store/power_cut_vfs.h"
#include "server/store/store.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using S = JobState;

constexpr int kCutsOfARun = 10;
constexpr int64_t kMaxChanges = 400;
constexpr int64_t kChangesOfAStart = 60;

// What the store has said of a job, and what it may have done beyond that.
struct Known {
  std::string id;  // "": its creation was not acknowledged.
  std::string uid;
  S state = S::kValidating;
  std::optional<S> maybe;  // Asked for, and not acknowledged.
};

class PowerCutTest : public testing::Test {
 protected:
  void SetUp() override {
    const fs::path memory = "/dev/shm";
    dir_ = (fs::is_directory(memory) ? memory : fs::path(testing::TempDir())) /
           absl::StrCat("rh_power.", getpid());
  }
  void TearDown() override { fs::remove_all(dir_); }

  void BeginRun(int64_t seed) {
    rng_.seed(seed);
    jobs_.clear();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    disk_.Settle();
  }
  absl::Status Open() {
    store_.reset();
    auto store = JobStore::Open({.path = dir_ / "jobs.db"});
    if (store.ok()) store_ = *std::move(store);
    return store.status();
  }
  NewJob Job(const std::string& request) const {
    return {.text = absl::StrCat("text of ", request),
            .resolved = std::string(1 + request.back() * 40, 'r'),
            .request_id = request};
  }

  // Writes until the power is gone.
  void Work() {
    while (!disk_.cut()) {
      if (rng_() % 3 == 0 || jobs_.empty()) {
        CreateOne();
      } else {
        auto job = jobs_.begin();
        std::advance(job, rng_() % jobs_.size());
        if (!job->second.id.empty()) MoveOne(&job->second);
      }
    }
  }
  void CreateOne() {
    const std::string request = absl::StrCat("request-", jobs_.size());
    Known& known = jobs_[request];
    const auto made = store_->Create(Job(request));
    if (!made.ok()) return;
    known.id = made->id;
    known.uid = made->uid;
  }
  void MoveOne(Known* known) {
    const std::map<S, S> next = {{S::kValidating, S::kQueued},
                                 {S::kQueued, S::kLoading},
                                 {S::kLoading, S::kRunning},
                                 {S::kRunning, S::kRecovering},
                                 {S::kRecovering, S::kQueued}};
    const S to = next.at(known->state);
    if (store_->Transition(known->id, to, {}).ok()) {
      known->state = to;
    } else {
      known->maybe = to;
    }
  }

  // The store as it is after the cut.
  void Check() {
    ASSERT_TRUE(store_->findings().empty()) << store_->findings()[0];
    std::set<std::string> ids;
    for (auto& [request, known] : jobs_) {
      SCOPED_TRACE(request);
      bool created = false;
      const auto again = store_->Create(Job(request), &created);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_TRUE(ids.insert(again->id).second) << again->id << " twice";
      if (!known.id.empty()) {
        EXPECT_FALSE(created) << known.id << " is lost";
        EXPECT_EQ(again->id, known.id);
        EXPECT_EQ(again->uid, known.uid);
      }
      EXPECT_TRUE(again->state == known.state || again->state == known.maybe)
          << JobStateName(again->state) << ", not "
          << JobStateName(known.state);
      known = {again->id, again->uid, again->state, std::nullopt};
    }
    EXPECT_EQ(store_->List({}, std::nullopt, 100000)->jobs.size(), ids.size());
    const auto changes = store_->ChangesAfter(0, "", 1000000);
    ASSERT_TRUE(changes.ok()) << changes.status();
    EXPECT_EQ(static_cast<int64_t>(changes->size()), *store_->Revision());
  }

  PowerCutVfs disk_;
  fs::path dir_;
  std::mt19937_64 rng_;
  std::map<std::string, Known> jobs_;  // By request id.
  std::unique_ptr<JobStore> store_;
};

TEST_F(PowerCutTest, NothingAcknowledgedIsLost) {
  const int64_t cuts = NumberFromEnvironment("ROUNDHOUSE_COUNT", 200);
  const int64_t seed = NumberFromEnvironment("ROUNDHOUSE_SEED", 1);
  int64_t starts_cut = 0, jobs = 0;
  for (int64_t cut = 0; cut < cuts && !HasFatalFailure(); ++cut) {
    if (cut % kCutsOfARun == 0) BeginRun(seed + cut / kCutsOfARun);
    SCOPED_TRACE(absl::StrCat("seed ", seed + cut / kCutsOfARun, ", cut ",
                              cut % kCutsOfARun));
    // Some of them in the start itself.
    const int64_t most = rng_() % 4 == 0 ? kChangesOfAStart : kMaxChanges;
    disk_.CutAfter(static_cast<int64_t>(rng_() % most));
    if (Open().ok()) {
      Work();
    } else {
      ++starts_cut;
    }
    store_.reset();
    disk_.Restore(&rng_);
    const absl::Status opened = Open();
    ASSERT_TRUE(opened.ok()) << opened;
    Check();
    store_.reset();
    if (cut % kCutsOfARun == kCutsOfARun - 1) jobs += jobs_.size();
  }
  std::cout << "power cuts: " << cuts << ", of them in a start: " << starts_cut
            << ", jobs at the ends of runs: " << jobs << "\n";
  EXPECT_LT(starts_cut, cuts);
}

// The disk of this test does lose what was not synced.
TEST_F(PowerCutTest, TheDiskForgets) {
  BeginRun(1);
  const std::string path = dir_ / "a.db";
  {
    auto db = Database::Open(path, Database::Mode::kWrite);
    ASSERT_TRUE((*db)
                    ->Execute("PRAGMA synchronous=OFF; CREATE TABLE t (a); "
                              "INSERT INTO t VALUES (1)")
                    .ok());
    disk_.CutAfter(0);
    EXPECT_FALSE((*db)->Execute("INSERT INTO t VALUES (2)").ok());
    EXPECT_TRUE(disk_.cut());
  }
  disk_.Restore(&rng_);
  auto db = Database::Open(path, Database::Mode::kRead);
  EXPECT_FALSE(db.ok() && (*db)->QueryInt("SELECT count(*) FROM t").ok());
}

}  // namespace
}  // namespace roundhouse
