// Rows of the audit: what is found again, what is counted, and that nothing
// changes or loses one.
#include "server/audit/audit_log.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"
#include "server/testing/fresh_store.h"

namespace roundhouse {
namespace {

constexpr char kSetUser[] = "AccountService/SetUser";

AuditRecord Act(const std::string& principal, const std::string& resource) {
  return {.principal = principal,
          .user = "anna",
          .peer = "unix",
          .rpc = kSetUser,
          .resource = resource};
}

AuditRecord Refusal(const std::string& principal) {
  AuditRecord record = Act(principal, "anna");
  record.code = absl::StatusCode::kPermissionDenied;
  record.reason = "PERMISSION_DENIED";
  return record;
}

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() {
    path_ = FreshStorePath();
    Open();
  }
  void Open() {
    log_.reset();
    store_.reset();
    auto store =
        JobStore::Open({.path = path_, .fault = [this] {
                          return fails_
                                     ? absl::ResourceExhaustedError("disk full")
                                     : absl::OkStatus();
                        }});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    log_ = std::make_unique<AuditLog>(
        store_.get(),
        AuditOptions{.on_loss = [this] { ++lost_; }, .clock = &clock_});
  }
  std::vector<AuditRecord> All(AuditQuery query = {}) {
    const auto page = log_->List(query);
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? page->records : std::vector<AuditRecord>();
  }
  absl::Status Execute(const std::string& sql) {
    return store_->WriteWith([&](Database* db) { return db->Execute(sql); });
  }

  ManualClock clock_;
  std::string path_;
  std::atomic<bool> fails_ = false;
  std::atomic<int> lost_ = 0;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<AuditLog> log_;
};

TEST_F(AuditLogTest, ARowIsFoundAgainAsItWas) {
  AuditRecord record = Act("uid:1", "anna");
  record.token = "t1";
  record.part = AuditPart::kEnd;
  record.code = absl::StatusCode::kCancelled;
  record.reason = "CANCELLED";
  record.message = "gone";
  record.count = 3;
  record.duration = absl::Milliseconds(1500);
  log_->Record(record);
  Open();
  const auto rows = All();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].number, 1);
  EXPECT_EQ(rows[0].time, clock_.WallTime());
  EXPECT_EQ(rows[0].principal, "uid:1");
  EXPECT_EQ(rows[0].user, "anna");
  EXPECT_EQ(rows[0].token, "t1");
  EXPECT_EQ(rows[0].peer, "unix");
  EXPECT_EQ(rows[0].rpc, kSetUser);
  EXPECT_EQ(rows[0].part, AuditPart::kEnd);
  EXPECT_EQ(rows[0].resource, "anna");
  EXPECT_EQ(rows[0].code, absl::StatusCode::kCancelled);
  EXPECT_EQ(rows[0].reason, "CANCELLED");
  EXPECT_EQ(rows[0].message, "gone");
  EXPECT_EQ(rows[0].count, 3);
  EXPECT_EQ(rows[0].duration, absl::Milliseconds(1500));
}

TEST_F(AuditLogTest, PagesAndFilters) {
  for (int i = 0; i < 5; ++i) {
    log_->Record(Act(absl::StrCat("uid:", i), absl::StrCat("jobs/job-", i)));
    clock_.Advance(absl::Seconds(10));
  }
  AuditRecord other = Act("uid:0", "");
  other.user = "otto";
  other.rpc = "FineTuningJobService/SetUsers";
  log_->Record(other);
  const auto first = log_->List({.limit = 4});
  ASSERT_EQ(first->records.size(), 4u);
  EXPECT_EQ(first->records[0].number, 6);
  ASSERT_EQ(first->next_before, 3);
  const auto second = log_->List({.before = first->next_before, .limit = 4});
  EXPECT_EQ(second->records.size(), 2u);
  EXPECT_FALSE(second->next_before.has_value());
  EXPECT_EQ(All({.user = "uid:0"}).size(), 2u);
  EXPECT_EQ(All({.user = "otto"}).size(), 1u);
  EXPECT_EQ(All({.rpc = "SetUser"}).size(), 5u);
  EXPECT_EQ(All({.rpc = kSetUser}).size(), 5u);
  EXPECT_EQ(All({.rpc = "User"}).size(), 0u);
  EXPECT_EQ(All({.resource = "job-3"}).size(), 1u);
  EXPECT_EQ(All({.resource = "jobs/job-3"}).size(), 1u);
  EXPECT_EQ(All({.resource = "3"}).size(), 0u);
  EXPECT_EQ(All({.since = clock_.WallTime()}).size(), 1u);
  EXPECT_EQ(All({.until = clock_.WallTime() - absl::Seconds(40)}).size(), 1u);
  EXPECT_EQ(All({.failed = true}).size(), 0u);
  EXPECT_EQ(All({.code = absl::StatusCode::kOk}).size(), 6u);
}

// Addresses without a token are nobody, and not the same one.
TEST_F(AuditLogTest, RefusalsOfNobodyAreCountedByAddress) {
  for (const char* peer : {"192.0.2.1", "192.0.2.2"}) {
    for (int i = 0; i < 3; ++i) {
      AuditRecord refusal = Refusal("");
      refusal.peer = peer;
      log_->RecordLater(refusal);
    }
  }
  log_->Stop();
  std::map<std::string, int64_t> counts;
  for (const AuditRecord& row : All()) counts[row.peer] += row.count;
  EXPECT_EQ(counts["192.0.2.1"], 3);
  EXPECT_EQ(counts["192.0.2.2"], 3);
  EXPECT_EQ(All().size(), 4u);
}

TEST_F(AuditLogTest, WhatSucceedsAgainAndChangesNothingIsCounted) {
  for (int i = 0; i < 100; ++i) {
    log_->RecordAlike(Act("uid:1", "token-1"));
    EXPECT_EQ(All().size(), 1u) << "the first is there at once";
  }
  log_->RecordAlike(Act("uid:1", "token-2"));
  log_->RecordAlike(Act("uid:2", "token-1"));
  EXPECT_EQ(All().size(), 3u);
  log_->Stop();
  const auto rows = All();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].count, 99);
  EXPECT_EQ(rows[0].resource, "token-1");
  EXPECT_EQ(rows[0].code, absl::StatusCode::kOk);
}

TEST_F(AuditLogTest, WhatFailsAgainIsCounted) {
  for (int i = 0; i < 1000; ++i) {
    log_->RecordLater(Refusal("uid:1"));
    log_->RecordLater(Refusal("uid:2"));
  }
  log_->Stop();
  const auto rows = All();
  ASSERT_EQ(rows.size(), 4u);
  int64_t first = 0;
  for (const AuditRecord& row : rows) first += row.count == 1;
  EXPECT_EQ(first, 2);
  EXPECT_EQ(rows[0].count, 999);
  EXPECT_EQ(rows[1].count, 999);
  EXPECT_EQ(rows[0].rpc, kSetUser);
  EXPECT_EQ(All({.failed = true}).size(), 4u);
  EXPECT_EQ(All({.code = absl::StatusCode::kPermissionDenied}).size(), 4u);
}

TEST_F(AuditLogTest, WhatIsDoneIsNeverCounted) {
  for (int i = 0; i < 20; ++i) log_->RecordLater(Act("uid:1", "anna"));
  log_->Stop();
  EXPECT_EQ(All().size(), 20u);
}

TEST_F(AuditLogTest, LongTextsAreCutWhereACharacterEnds) {
  AuditRecord record = Act("uid:1", std::string(1000, 'r'));
  for (int i = 0; i < 200; ++i) record.message += "\xc3\xa9";  // e with acute
  log_->Record(record);
  const auto rows = All();
  EXPECT_EQ(rows[0].resource, std::string(253, 'r') + "...");
  EXPECT_EQ(rows[0].message.size(), 255u);
  EXPECT_EQ(rows[0].message.substr(250), "\xc3\xa9...");
}

// The disk is full: whatever was done stays done, and somebody is told.
TEST_F(AuditLogTest, ARowThatCannotBeWrittenIsCounted) {
  fails_ = true;
  log_->Record(Act("uid:1", "anna"));
  EXPECT_EQ(lost_, 1);
  log_->RecordLater(Act("uid:1", "anna"));
  log_->Stop();
  EXPECT_EQ(lost_, 2);
  log_->RecordLater(Act("uid:1", "anna"));
  EXPECT_EQ(lost_, 3);
  fails_ = false;
  EXPECT_TRUE(All().empty());
}

TEST_F(AuditLogTest, RowsAreNeitherChangedNorReplacedNorTakenAway) {
  log_->Record(Act("uid:1", "anna"));
  log_->Record(Act("uid:2", "anna"));
  for (const char* sql :
       {"UPDATE audit SET principal = 'x'",
        "UPDATE audit SET number = 7 WHERE number = 1", "DELETE FROM audit",
        "DELETE FROM audit WHERE number = 1",
        "REPLACE INTO audit SELECT number, 0, 'x', '', '', '', '', 0, '', 0, "
        "'', '', 1, 0 FROM audit",
        "INSERT OR REPLACE INTO audit (number, time_us, principal, user, "
        "token, peer, rpc, part, resource, code, reason, message, count, "
        "duration_us) VALUES (1, 0, 'x', '', '', '', '', 0, '', 0, '', '', 1, "
        "0)"}) {
    EXPECT_FALSE(Execute(sql).ok()) << sql;
  }
  const auto rows = All();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].principal, "uid:1");
}

TEST_F(AuditLogTest, TheOldestGoesWhenThereAreTooMany) {
  log_->Record(Act("uid:1", "anna"));
  ASSERT_TRUE(Execute(absl::StrCat("UPDATE sqlite_sequence SET seq = ",
                                   kMaxAuditRows - 1, " WHERE name = 'audit'"))
                  .ok());
  log_->Record(Act("uid:2", "anna"));  // number kMaxAuditRows
  EXPECT_EQ(All().size(), 2u);
  log_->Record(Act("uid:3", "anna"));
  const auto rows = All();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].principal, "uid:2");
  EXPECT_EQ(lost_, 0);
}

TEST(RepeatBookTest, AMinuteThatIsOverIsARow) {
  RepeatBook book;
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT_FALSE(book.next_end_ns().has_value());
  EXPECT_FALSE(book.Counts(Refusal("uid:1"), 0));
  EXPECT_TRUE(book.Counts(Refusal("uid:1"), 59 * kSecond));
  EXPECT_FALSE(book.Counts(Refusal("uid:2"), 59 * kSecond));
  EXPECT_EQ(book.next_end_ns(), 60 * kSecond);
  EXPECT_TRUE(book.TakeEnded(59 * kSecond).empty());
  const auto rows = book.TakeEnded(60 * kSecond);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].principal, "uid:1");
  EXPECT_EQ(rows[0].count, 1);
  EXPECT_FALSE(book.Counts(Refusal("uid:1"), 61 * kSecond));
  EXPECT_TRUE(book.TakeAll().empty());
}

TEST(RepeatBookTest, CallersBeyondItsSizeAreCountedTogether) {
  RepeatBook book;
  for (size_t i = 0; i < kMaxRepeats; ++i) {
    EXPECT_FALSE(book.Counts(Refusal(absl::StrCat("uid:", i)), 0));
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(book.Counts(Refusal(absl::StrCat("more:", i)), 0));
  }
  const auto rows = book.TakeAll();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].rpc, kOtherRepeats);
  EXPECT_EQ(rows[0].count, 10);
}

}  // namespace
}  // namespace roundhouse
