// What a job store says and does about writes that it has lost.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/store/store.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;
using S = JobState;

class StoreLossTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rh_loss.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(dir_);
  }

  std::string path() const { return dir_ / "jobs.db"; }
  absl::Status Open() {
    store_.reset();
    auto store = JobStore::Open(
        {.path = path(), .now = [] { return absl::FromUnixSeconds(1000); }});
    if (store.ok()) store_ = *std::move(store);
    return store.status();
  }
  std::string Create(const std::string& text = "t") {
    const auto job = store_->Create({.text = text, .resolved = "{}"});
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->id : "";
  }
  std::string Finding() const {
    return store_->findings().size() == 1
               ? store_->findings()[0]
               : absl::StrCat(store_->findings().size(), " findings");
  }
  void Sql(const std::string& sql) {
    store_.reset();
    auto db = Database::Open(path(), Database::Mode::kWrite);
    ASSERT_TRUE(db.ok()) << db.status();
    const absl::Status done = (*db)->Execute(sql);
    ASSERT_TRUE(done.ok()) << done;
  }
  // The one place where the file has `text`.
  void FlipBitOf(const std::string& text) {
    std::string content(fs::file_size(path()), '\0');
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.read(content.data(), static_cast<std::streamsize>(content.size()));
    const size_t at = content.find(text);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(content.find(text, at + 1), std::string::npos);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(content[at] ^ 1));
  }
  void ExpectFinding(const std::string& part) {
    EXPECT_TRUE(absl::StrContains(Finding(), part)) << Finding();
  }

  fs::path dir_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(StoreLossTest, AStoreThatLostNothingSaysNothing) {
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(store_->findings().empty());
  Create();
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(store_->findings().empty());
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(store_->findings().empty());
}

TEST_F(StoreLossTest, ALostTailIsNamedAndItsNumbersAreNotGivenAgain) {
  ASSERT_TRUE(Open().ok());
  Create();
  ASSERT_TRUE(Open().ok());
  fs::copy_file(path(), dir_ / "older");
  Create();
  const std::string last = Create();
  ASSERT_TRUE(store_->Transition(last, S::kQueued, {}).ok());
  EXPECT_EQ(*store_->Revision(), 4);
  store_.reset();
  fs::rename(dir_ / "older", path());
  ASSERT_TRUE(Open().ok());
  ExpectFinding("has lost acknowledged writes: 3 commits are missing");
  ExpectFinding("jobs lost: job-2 to job-3 (their ids are not given again)");
  ExpectFinding("events lost: 2 to 4");
  ExpectFinding("jobs.db.kept-1000");
  EXPECT_TRUE(fs::exists(path() + ".kept-1000"));
  EXPECT_EQ(Create(), "job-4");
  EXPECT_EQ(*store_->Revision(), 5);
  EXPECT_EQ(store_->ChangesAfter(4, "", 10)->size(), 1u);
  EXPECT_TRUE(absl::IsOutOfRange(store_->ChangesAfter(3, "", 10).status()))
      << "who has seen what is lost must list again";
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(store_->findings().empty()) << "once";
  EXPECT_EQ(Create(), "job-5");
}

TEST_F(StoreLossTest, AStoreThatIsGoneIsNamedAndItsNumbersAreNotGivenAgain) {
  ASSERT_TRUE(Open().ok());
  Create();
  Create();
  store_.reset();
  fs::remove(path());
  ASSERT_TRUE(Open().ok());
  ExpectFinding("jobs lost: job-1 to job-2");
  EXPECT_EQ(Create(), "job-3");
  store_.reset();
  fs::remove(path());
  fs::remove(dir_ / "jobs.mark");
  ASSERT_TRUE(Open().ok());
  ExpectFinding("was missing and is made anew");
  ExpectFinding("the last backup is kept as");
}

TEST_F(StoreLossTest, AMarkThatIsGoneOrDamagedIsSaid) {
  ASSERT_TRUE(Open().ok());
  Create();
  store_.reset();
  fs::remove(dir_ / "jobs.mark");
  ASSERT_TRUE(Open().ok());
  ExpectFinding("jobs.mark is missing and made anew");
  store_.reset();
  std::ofstream(dir_ / "jobs.mark") << "roundhouse mark: commit 9";
  ASSERT_TRUE(Open().ok());
  ExpectFinding("jobs.mark is damaged and written anew");
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(store_->findings().empty());
}

TEST_F(StoreLossTest, ATornMarkLeavesTheOneBefore) {
  auto file = MarkFile::Open(dir_ / "m");
  ASSERT_TRUE((*file)->Write({1, 10, 100}).ok());
  ASSERT_TRUE((*file)->Write({2, 20, 200}).ok());
  fs::resize_file(dir_ / "m", 2 * kMarkSlotBytes);
  std::fstream torn(dir_ / "m", std::ios::in | std::ios::out);
  torn.write("roundhouse mark: commit 4 job 40", 32);  // The slot of 2.
  torn.close();
  file = MarkFile::Open(dir_ / "m");
  EXPECT_TRUE((*file)->damaged());
  EXPECT_EQ((*file)->found(), (StoreMark{1, 10, 100}));
}

TEST_F(StoreLossTest, ADamagedRowIsRefusedByNameAndTheRemedyWorks) {
  ASSERT_TRUE(Open().ok());
  Create();
  Create("find-me");
  store_.reset();
  FlipBitOf("find-me");
  const absl::Status damaged = Open();
  EXPECT_TRUE(absl::IsDataLoss(damaged));
  const std::string text(damaged.message());
  EXPECT_TRUE(absl::StrContains(
      text, "table jobs, row job-2: differs from its checksum"))
      << text;
  EXPECT_TRUE(absl::StrContains(
      text, absl::StrCat("copy ", path(), ".backup to ", path())))
      << text;
  EXPECT_TRUE(absl::IsDataLoss(Open())) << "it stays so";
  fs::copy_file(path() + ".backup", path(),
                fs::copy_options::overwrite_existing);
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(store_->findings().empty()) << Finding();
  EXPECT_EQ(store_->Get("job-2")->text, "find-me");
}

TEST_F(StoreLossTest, ARowThatIsDamagedLaterIsNeitherAnsweredNorWrittenOver) {
  ASSERT_TRUE(Open().ok());
  Create();
  Create("find-me");
  ASSERT_TRUE(Open().ok());
  FlipBitOf("find-me");
  EXPECT_TRUE(absl::IsDataLoss(store_->Get("job-2").status()));
  EXPECT_TRUE(store_->Get("job-1").ok());
  auto db = Database::Open(path(), Database::Mode::kWrite);
  const absl::Status update =
      (*db)->Execute("UPDATE jobs SET state = 2 WHERE number = 2");
  EXPECT_TRUE(absl::IsDataLoss(update)) << update;
  EXPECT_TRUE(
      (*db)->Execute("UPDATE jobs SET state = 2 WHERE number = 1").ok());
}

TEST_F(StoreLossTest, OtherTablesAreRefused) {
  for (const char* sql :
       {"DROP TRIGGER jobs_are_whole", "DROP INDEX jobs_by_state",
        "CREATE TABLE more (a)", "DELETE FROM meta WHERE key = 'last_job'",
        "PRAGMA user_version=2", "PRAGMA user_version=0",
        "UPDATE sqlite_sequence SET seq = 9 WHERE name = 'jobs'",
        "PRAGMA foreign_keys=OFF; DELETE FROM jobs WHERE number = 1"}) {
    SCOPED_TRACE(sql);
    fs::remove(path());
    fs::remove(path() + ".backup");
    fs::remove(dir_ / "jobs.mark");
    ASSERT_TRUE(Open().ok());
    Create();
    Create();
    Sql(sql);
    const absl::Status status = Open();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(absl::StrContains(std::string(status.message()),
                                  "nothing is served from"))
        << status;
  }
}

TEST_F(StoreLossTest, SkippedJobNumbersAreNotGiven) {
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(store_->SkipJobNumbers(41).ok());
  EXPECT_EQ(Create(), "job-42");
  ASSERT_TRUE(store_->SkipJobNumbers(7).ok());
  EXPECT_EQ(Create(), "job-43");
  ASSERT_TRUE(store_->SkipJobNumbers(50).ok());
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(store_->findings().empty()) << Finding();
  EXPECT_EQ(Create(), "job-51");
  EXPECT_EQ(*store_->FindUid(store_->Get("job-51")->uid), "job-51");
  EXPECT_EQ(*store_->FindUid("0"), std::nullopt);
}

TEST_F(StoreLossTest, TheWalStaysShortAndIsEmptyAfterAStart) {
  ASSERT_TRUE(Open().ok());
  uintmax_t longest = 0;
  for (int i = 0; i < 10 * kMaxCommitsInWal; ++i) {
    Create();
    longest = std::max(longest, fs::file_size(path() + "-wal"));
  }
  // A commit changes some ten pages of 4,096 bytes.
  EXPECT_LT(longest, uintmax_t{20} * 4096 * kMaxCommitsInWal);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(fs::file_size(path() + "-wal"), 0u);
}

}  // namespace
}  // namespace roundhouse
