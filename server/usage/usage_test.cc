// The table of what was used, and who writes it.
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"
#include "server/loop/event_loop.h"
#include "server/loop/manual_threads.h"
#include "server/store/store.h"
#include "server/testing/fresh_store.h"
#include "server/usage/usage_book.h"
#include "server/usage/usage_table.h"

namespace roundhouse {
namespace {

const JobOwner kAnna = {"vision", "anna"};
constexpr int64_t kHour = 1'700'000'000 / 3600;  // of ManualClock

// A book, and a store that refuses what the test says.
class UsageTest : public testing::Test {
 protected:
  UsageTest() { Open(); }
  ~UsageTest() override { Kill(); }

  void Kill() {
    threads_.Abandon();
    loop_->StopBeside();
    book_.reset();
    loop_.reset();
    store_.reset();
  }
  void Open() {
    auto store =
        JobStore::Open({.path = path_, .fault = [this] { return fault_; }});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    loop_ = *EventLoop::Create(clock_);
    book_ = std::make_unique<UsageBook>(*loop_, *store_);
    ASSERT_TRUE(book_->Load().ok());
  }
  void Use(int64_t ns, JobId job = JobId{7}) {
    book_->AddDevice({.owner = kAnna, .job = job, .device_ns = ns});
  }
  void Flush() {
    book_->Flush();
    while (threads_.Run() || loop_->RunTurn(absl::ZeroDuration())) {
    }
  }
  UsageRows Rows() {
    UsageRows rows;
    const absl::Status read = ReadUsage(
        *store_, 0, [&rows](const UsageKey& key, const UsageAmount& amount) {
          rows[key] = amount;
        });
    EXPECT_TRUE(read.ok()) << read;
    return rows;
  }
  int64_t DeviceNs() {
    int64_t sum = 0;
    for (const auto& [key, amount] : Rows()) sum += amount.device_ns;
    return sum;
  }

  const std::string path_ = FreshStorePath();
  ManualClock clock_;
  absl::Status fault_;
  ManualThreads threads_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<UsageBook> book_;
};

TEST_F(UsageTest, ARowHasAJobsHour) {
  Use(5);
  Use(6);
  book_->AddDevice({.owner = {"default", "otto"}, .device_ns = 9});
  book_->Tick({{kAnna, JobId{7}, uint64_t{3} << 20}});
  clock_.Advance(absl::Seconds(10));
  book_->Tick({{kAnna, JobId{7}, uint64_t{3} << 20}, {kAnna, JobId{8}, 0}});
  Flush();
  clock_.Advance(absl::Hours(1));
  Use(100);
  Flush();
  const UsageRows rows = Rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.at({kHour, 0, "default", "otto", 1}), (UsageAmount{9, 0}));
  EXPECT_EQ(rows.at({kHour, 7, "vision", "anna", 1}), (UsageAmount{11, 30}));
  EXPECT_EQ(rows.at({kHour + 1, 7, "vision", "anna", 1}),
            (UsageAmount{100, 0}));
}

TEST_F(UsageTest, ItIsWrittenOnceAMinute) {
  Use(5);
  for (int second = 0; second < 59; ++second) {
    clock_.Advance(absl::Seconds(1));
    book_->Tick({});
    threads_.Run();
  }
  EXPECT_TRUE(Rows().empty());
  clock_.Advance(absl::Seconds(1));
  book_->Tick({});
  threads_.Run();
  EXPECT_EQ(DeviceNs(), 5);
}

TEST_F(UsageTest, NothingIsCountedTwice) {
  Use(5);
  fault_ = absl::UnavailableError("no");
  Flush();
  EXPECT_EQ(DeviceNs(), 0);
  Use(1);
  fault_ = absl::OkStatus();
  Flush();
  Flush();
  EXPECT_EQ(DeviceNs(), 6);
  // It is written, and nobody learns of it.
  Use(10);
  book_->Flush();
  threads_.Run();
  EXPECT_EQ(DeviceNs(), 16);
  Use(100);
  book_->Flush();
  Flush();
  EXPECT_EQ(DeviceNs(), 116);
}

TEST_F(UsageTest, AnotherLifeAndAClockThatIsSetBackAddToIt) {
  Use(1);
  Flush();
  Use(1000);  // lost with the daemon
  Kill();
  Open();
  Use(10);
  Flush();
  EXPECT_EQ(DeviceNs(), 11);
  clock_.Advance(absl::Hours(2));
  Use(100);
  Flush();
  clock_.Advance(-absl::Hours(2));
  Use(20);
  Flush();
  EXPECT_EQ(DeviceNs(), 131);
  EXPECT_EQ(Rows().size(), 4u);
}

TEST_F(UsageTest, WhatWasUsedLatelyIsThereAfterARestart) {
  Use(1000);
  clock_.Advance(absl::Hours(kHalfLifeHours));
  Use(100);
  book_->AddDevice({.owner = {"vision", "otto"}, .device_ns = 300});
  Flush();
  for (int life = 0; life < 2; ++life) {
    const RecentUse& recent = book_->recent();
    EXPECT_DOUBLE_EQ(recent.OfUser(kAnna),
                     2 * recent.OfUser({"vision", "otto"}));
    EXPECT_DOUBLE_EQ(recent.OfProject("vision"), 1.5 * recent.OfUser(kAnna));
    Kill();
    Open();
  }
}

TEST_F(UsageTest, RowsOutliveTheirJob) {
  const auto job = store_->Create({.text = "t", .resolved = "{}"});
  ASSERT_TRUE(job.ok());
  Use(5, JobId{1});
  Flush();
  ASSERT_TRUE(store_->Transition(job->id, JobState::kFailed, {}).ok());
  ASSERT_TRUE(
      store_->RemoveJob(job->id, {}, [](Database*) { return absl::OkStatus(); })
          .ok());
  ASSERT_TRUE(store_->EndRemoveJob(job->id).ok());
  Kill();
  Open();
  EXPECT_EQ(DeviceNs(), 5);
}

TEST_F(UsageTest, OldRowsGo) {
  UsageRows rows;
  for (int64_t ago : {kUsageHoursKept + 1, kUsageHoursKept, int64_t{0}}) {
    rows[{.hour = kHour - ago}] = {1, 1};
  }
  ASSERT_TRUE(WriteUsage(*store_, rows).ok());
  Use(1);
  Flush();
  EXPECT_EQ(Rows().size(), 3u);
  EXPECT_EQ(Rows().begin()->first.hour, kHour - kUsageHoursKept);
}

// More than one read takes, too.
TEST_F(UsageTest, TheNewestHoursStay) {
  UsageRows rows;
  for (int64_t i = 0; i < kMaxUsageRows + 250; ++i) {
    rows[{.hour = kHour - i / 100, .job = i}] = {1, 0};
  }
  ASSERT_TRUE(WriteUsage(*store_, rows).ok());
  ASSERT_TRUE(DropOldUsage(*store_, kHour).ok());
  EXPECT_EQ(Rows().size(), static_cast<size_t>(kMaxUsageRows + 100));
}

// Adds a row whose checksum is not its own.
absl::Status AddDamaged(Database* db) {
  const auto checksums = [](const std::string& from, const std::string& to) {
    return absl::StrCat("PRAGMA writable_schema=ON;",
                        "UPDATE sqlite_schema SET sql = replace(sql, '", from,
                        "', '", to, "') WHERE name = 'usage';",
                        "PRAGMA writable_schema=RESET;");
  };
  return db->Execute(absl::StrCat(checksums("AS (row_", "AS (1 + row_"),
                                  "INSERT INTO usage VALUES (", kHour,
                                  ", 7, 'vision', 'anna', 1, 400, 0);",
                                  checksums("AS (1 + row_", "AS (row_")));
}

TEST_F(UsageTest, ADamagedRowIsNamedAndNotWrittenOver) {
  ASSERT_TRUE(store_->WriteWith(AddDamaged).ok());
  Use(5);
  Use(7, JobId{8});
  Flush();
  int64_t sum = 0;
  const absl::Status read =
      ReadUsage(*store_, 0, [&sum](const UsageKey&, const UsageAmount& amount) {
        sum += amount.device_ns;
      });
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_TRUE(absl::StrContains(std::string(read.message()),
                                "table usage, row hour 472222 job-7 of anna"))
      << read;
  // What another job used is there.
  ASSERT_TRUE(store_
                  ->WriteWith([](Database* db) {
                    return db->Execute("DELETE FROM usage WHERE job = 7");
                  })
                  .ok());
  EXPECT_EQ(DeviceNs(), 7);
}

}  // namespace
}  // namespace roundhouse
