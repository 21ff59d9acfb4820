// Which limit holds for whom, and what a refusal says.
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/manual_clock.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "server/access/accounts.h"
#include "server/limits/limit_check.h"
#include "server/limits/limit_table.h"
#include "server/limits/sharing.h"
#include "server/spec/spec_error.h"
#include "server/testing/fresh_store.h"

namespace roundhouse {
namespace {

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() {
    path_ = FreshStorePath();
    Open();
    EXPECT_TRUE(accounts_->AddProject("vision").ok());
    EXPECT_TRUE(accounts_->SetUser({.name = "anna", .project = "vision"}).ok());
    EXPECT_TRUE(accounts_->SetUser({.name = "otto", .project = "vision"}).ok());
  }
  void Open() {
    check_.reset();
    table_.reset();
    accounts_.reset();
    store_.reset();
    store_ = *JobStore::Open({.path = path_});
    accounts_ = *Accounts::Load(store_.get());
    table_ = *LimitTable::Load(store_.get());
    check_ = std::make_unique<LimitCheck>(table_.get(), store_.get(), clock_);
  }
  absl::Status Set(const std::string& subject, const std::string& limit,
                   int64_t value) {
    return table_->Set(*accounts_->list(), subject, limit, value);
  }
  static Caller Member(const std::string& name) {
    return {.principal = "uid:7",
            .user = name,
            .projects = {{"vision", Role::kMember}}};
  }
  absl::Status AddJob(const Caller& caller,
                      const std::string& project = "vision",
                      Priority priority = Priority::kNormal,
                      uint64_t host_bytes = 0) {
    return store_
        ->Create({.text = "t",
                  .resolved = "{}",
                  .owner = caller.owner(),
                  .project = project,
                  .priority = priority,
                  .may_be_made =
                      [&](Database* db) {
                        return check_->MayAddJob(caller, project)(db, priority,
                                                                  host_bytes);
                      }})
        .status();
  }

  ManualClock clock_;
  std::string path_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<LimitTable> table_;
  std::unique_ptr<LimitCheck> check_;
};

TEST_F(LimitsTest, AServerThatStopsDoesNothingMore) {
  EXPECT_TRUE(check_->CheckCall(Member("anna")).ok());
  check_->Stop();
  for (const Caller& caller : {Member("anna"), Caller{.admin = true}}) {
    EXPECT_TRUE(absl::IsUnavailable(check_->CheckCall(caller)));
  }
}

TEST_F(LimitsTest, TheMostSpecificRowOfAUserCounts) {
  const Caller anna = Member("anna");
  EXPECT_FALSE(check_->OfCaller(anna, Limit::kUnpackedBytes).has_value());
  ASSERT_TRUE(Set("everybody", "unpacked_bytes", 10).ok());
  EXPECT_EQ(check_->OfCaller(anna, Limit::kUnpackedBytes)->value, 10);
  ASSERT_TRUE(Set("user:anna", "unpacked_bytes", 20).ok());
  Open();
  EXPECT_EQ(check_->OfCaller(anna, Limit::kUnpackedBytes)->value, 20);
  EXPECT_EQ(check_->OfCaller(anna, Limit::kUnpackedBytes)->subject,
            "user:anna");
  EXPECT_EQ(check_->OfCaller(Member("otto"), Limit::kUnpackedBytes)->subject,
            "everybody");
  EXPECT_FALSE(
      check_->OfCaller({.admin = true}, Limit::kUnpackedBytes).has_value());
  ASSERT_TRUE(table_->Remove("user:anna", "unpacked_bytes").ok());
  EXPECT_EQ(check_->OfCaller(anna, Limit::kUnpackedBytes)->value, 10);
  EXPECT_TRUE(absl::IsNotFound(table_->Remove("user:anna", "unpacked_bytes")));
}

TEST_F(LimitsTest, WhatIsNoLimitNamesTheField) {
  const struct {
    const char* subject;
    const char* limit;
    int64_t value;
    const char* field;
  } cases[] = {{"anna", "queued_jobs", 1, "subject"},
               {"user:", "queued_jobs", 1, "subject"},
               {"user:nobody", "queued_jobs", 1, "subject"},
               {"project:none", "queued_jobs", 1, "subject"},
               {"project:vision", "open_streams", 1, "subject"},
               {"server", "bytes_in_flight", 1, "subject"},
               {"everybody", "queud_jobs", 1, "limit"},
               {"everybody", "queued_jobs", -1, "value"},
               {"everybody", "open_streams", 101, "value"},
               {"server", "open_streams", 2001, "value"}};
  for (const auto& [subject, limit, value, field] : cases) {
    const absl::Status status = Set(subject, limit, value);
    EXPECT_FALSE(status.ok()) << subject << " " << limit;
    EXPECT_EQ(ErrorField(status), field) << status;
  }
  EXPECT_TRUE(absl::StrContains(Set("everybody", "queud_jobs", 1).message(),
                                "did you mean queued_jobs?"));
  EXPECT_TRUE(table_->rows()->values.empty());
}

TEST_F(LimitsTest, SharesAreWeightsAndNoBounds) {
  std::vector<Sharing> told;
  table_->OnChange(
      [&told](const LimitRows& rows) { told.push_back(SharingOf(rows)); });
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].weights.users.empty() &&
              told[0].weights.projects.empty());
  EXPECT_EQ(told[0].weights.other_users, 1);
  ASSERT_TRUE(Set("user:anna", "share", 3).ok());
  ASSERT_TRUE(Set("project:vision", "share", kMostShare).ok());
  ASSERT_TRUE(Set("everybody", "share", 2).ok());
  ASSERT_TRUE(Set("everybody", "queued_jobs", 7).ok());
  EXPECT_EQ(told.back().weights.users,
            (std::map<std::string, double>{{"anna", 3}}));
  EXPECT_EQ(told.back().weights.projects,
            (std::map<std::string, double>{{"vision", 1000}}));
  EXPECT_EQ(told.back().weights.other_users, 2);
  for (const auto& [value, why] : {std::pair{int64_t{0}, "must be 1 or more"},
                                   std::pair{int64_t{-1}, "must be 1 or more"},
                                   std::pair{kMostShare + 1,
                                             "1001 is more than 1000, the "
                                             "most that there is"}}) {
    const absl::Status refused = Set("user:anna", "share", value);
    EXPECT_TRUE(absl::StrContains(std::string(refused.message()), why))
        << refused;
  }
  EXPECT_TRUE(absl::StrContains(
      std::string(Set("server", "share", 2).message()), "users and projects"));
  ASSERT_TRUE(table_->Remove("user:anna", "share").ok());
  EXPECT_TRUE(told.back().weights.users.empty());
  EXPECT_EQ(told.size(), 6u);
}

TEST_F(LimitsTest, JobsOfAUserAndOfAProject) {
  const Caller anna = Member("anna"), otto = Member("otto");
  ASSERT_TRUE(Set("everybody", "queued_jobs", 2).ok());
  ASSERT_TRUE(Set("project:vision", "queued_jobs", 3).ok());
  ASSERT_TRUE(AddJob(anna).ok());
  ASSERT_TRUE(AddJob(anna).ok());
  absl::Status refused = AddJob(anna);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "queued_jobs of everybody is 2, and there are 2 jobs that have not "
            "ended; an admin changes it with: roundhouse limit set everybody "
            "queued_jobs VALUE");
  EXPECT_EQ(ErrorField(refused), "everybody");
  EXPECT_EQ(ErrorReason(refused), FieldReason::kQuota);
  ASSERT_TRUE(AddJob(otto).ok());
  refused = AddJob(otto);
  EXPECT_TRUE(absl::StrContains(refused.message(),
                                "queued_jobs of project:vision is 3"))
      << refused;
  EXPECT_TRUE(AddJob(otto, "default").ok());
  EXPECT_TRUE(AddJob({.principal = "uid:0", .admin = true}).ok());
  // One that ends makes room.
  ASSERT_TRUE(store_->Transition("job-1", JobState::kFailed, {}).ok());
  ASSERT_TRUE(store_->Transition("job-3", JobState::kFailed, {}).ok());
  EXPECT_TRUE(AddJob(anna).ok());
  EXPECT_FALSE(AddJob(anna).ok());
  EXPECT_EQ(*check_->Used(Limit::kQueuedJobs, {.owner = "anna"}), 2);
  EXPECT_EQ(*check_->Used(Limit::kQueuedJobs, {}), 4);
}

TEST_F(LimitsTest, JobsOfWhomMayRun) {
  const JobOwner anna = {"vision", "anna"}, otto = {"vision", "otto"};
  const JobOwner other = {"default", "otto"};
  const auto may = [this](const JobOwner& owner, std::vector<JobOwner> beside) {
    return MayHave(SharingOf(*table_->rows()).running, owner, CountOf(beside),
                   1);
  };
  EXPECT_TRUE(may(anna, std::vector<JobOwner>(100, anna)));
  ASSERT_TRUE(Set("everybody", "running_jobs", 1).ok());
  ASSERT_TRUE(Set("user:anna", "running_jobs", 2).ok());
  EXPECT_TRUE(may(anna, {anna, otto}));
  EXPECT_FALSE(may(anna, {anna, anna}));
  EXPECT_FALSE(may(otto, {other}));
  EXPECT_TRUE(may(otto, {anna, anna}));
  ASSERT_TRUE(Set("project:vision", "running_jobs", 2).ok());
  EXPECT_FALSE(may(otto, {anna, anna}));
  EXPECT_TRUE(may(other, {anna, anna}));
  ASSERT_TRUE(Set("server", "running_jobs", 2).ok());
  EXPECT_FALSE(may(other, {anna, anna}));
  ASSERT_TRUE(Set("user:anna", "running_jobs", 0).ok());
  EXPECT_FALSE(may(anna, {}));
}

TEST_F(LimitsTest, DeviceHoursAndHostMemoryOfOwners) {
  const JobOwner anna = {"vision", "anna"}, otto = {"vision", "otto"};
  EXPECT_TRUE(SharingOf(*table_->rows()).gpu_hours.empty());
  ASSERT_TRUE(Set("user:anna", "gpu_hours", 10).ok());
  ASSERT_TRUE(Set("project:vision", "gpu_hours", 15).ok());
  ASSERT_TRUE(Set("server", "host_bytes", 1000).ok());
  const Sharing sharing = SharingOf(*table_->rows());
  EXPECT_TRUE(sharing.running.empty());
  EXPECT_FALSE(sharing.gpu_hours.empty() || sharing.host_bytes.empty());
  OwnerUse used;
  used.Add(anna, 9);
  EXPECT_TRUE(MayHave(sharing.gpu_hours, anna, used, 1));
  used.Add(anna, 1);
  EXPECT_FALSE(MayHave(sharing.gpu_hours, anna, used, 1));
  EXPECT_TRUE(MayHave(sharing.gpu_hours, otto, used, 1));
  used.Add(otto, 5);
  EXPECT_FALSE(MayHave(sharing.gpu_hours, otto, used, 1));
  EXPECT_TRUE(MayHave(sharing.gpu_hours, {"speech", "otto"}, used, 1));
  EXPECT_TRUE(MayHave(sharing.host_bytes, otto, used, 985));
  EXPECT_FALSE(MayHave(sharing.host_bytes, otto, used, 986));
  for (int i = 0; i < 2; ++i) {
    used.Add(otto, std::numeric_limits<int64_t>::max());
  }
  EXPECT_EQ(used.all, std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(MayHave(sharing.host_bytes, anna, used, 0));
}

TEST_F(LimitsTest, AJobThatNeedsTooMuchAloneIsRefused) {
  const auto add = [this](const Caller& caller, uint64_t bytes) {
    return AddJob(caller, "vision", Priority::kNormal, bytes);
  };
  EXPECT_TRUE(add(Member("anna"), 1 << 20).ok());
  ASSERT_TRUE(Set("everybody", "host_bytes", 1000).ok());
  EXPECT_TRUE(add(Member("anna"), 1000).ok());
  const absl::Status refused = add(Member("anna"), 1001);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(ErrorReason(refused), FieldReason::kQuota);
  EXPECT_EQ(refused.message(),
            "host_bytes of everybody is 1000, and the job needs 1001 alone; an "
            "admin changes it with: roundhouse limit set everybody host_bytes "
            "VALUE");
  // It would wait for ever.
  EXPECT_FALSE(add({.principal = "uid:0", .admin = true}, 1001).ok());
  ASSERT_TRUE(Set("user:anna", "host_bytes", 2000).ok());
  EXPECT_TRUE(add(Member("anna"), 1001).ok());
}

TEST_F(LimitsTest, UrgentJobsAreARight) {
  const auto add = [this](const Caller& caller) {
    return AddJob(caller, "vision", Priority::kUrgent);
  };
  EXPECT_TRUE(add({.admin = true}).ok());
  const absl::Status refused = add(Member("anna"));
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(
      std::string(refused.message()),
      "urgent_jobs of user:anna is 0, and there are 0 urgent jobs that have "
      "not ended; an admin changes it with: roundhouse limit set user:anna "
      "urgent_jobs VALUE"))
      << refused;
  EXPECT_TRUE(AddJob(Member("anna")).ok());
  ASSERT_TRUE(Set("user:anna", "urgent_jobs", 2).ok());
  EXPECT_TRUE(add(Member("anna")).ok());
  ASSERT_TRUE(Set("project:vision", "urgent_jobs", 2).ok());
  EXPECT_FALSE(add(Member("anna")).ok());  // the admin's counts there
  ASSERT_TRUE(table_->Remove("project:vision", "urgent_jobs").ok());
  EXPECT_TRUE(add(Member("anna")).ok());
  EXPECT_FALSE(add(Member("anna")).ok());
  EXPECT_FALSE(add(Member("otto")).ok());
  ASSERT_TRUE(Set("everybody", "urgent_jobs", 1).ok());
  EXPECT_TRUE(add(Member("otto")).ok());
  EXPECT_FALSE(add(Member("otto")).ok());
  EXPECT_EQ(**check_->Used(Limit::kUrgentJobs, {.owner = "anna"}), 2);
}

TEST_F(LimitsTest, AJobThatBecomesUrgentCountsAsIfSubmittedSo) {
  const Caller anna = Member("anna");
  ASSERT_TRUE(AddJob(anna).ok());
  ASSERT_TRUE(AddJob(anna).ok());
  const auto set = [&](const std::string& id, Priority priority,
                       const Caller& caller) {
    PriorityChange change = {.priority = priority};
    change.may_be_urgent = check_->MayBeUrgent(caller, "vision");
    return store_->SetPriority(id, change).status();
  };
  const absl::Status refused = set("job-1", Priority::kUrgent, anna);
  EXPECT_EQ(ErrorReason(refused), FieldReason::kQuota) << refused;
  // For these nobody needs a right.
  EXPECT_TRUE(set("job-1", Priority::kBackfill, anna).ok());
  EXPECT_TRUE(set("job-1", Priority::kNormal, anna).ok());
  EXPECT_TRUE(AddJob(anna, "vision", Priority::kBackfill).ok());
  ASSERT_TRUE(Set("user:anna", "urgent_jobs", 1).ok());
  EXPECT_TRUE(set("job-1", Priority::kUrgent, anna).ok());
  EXPECT_TRUE(set("job-1", Priority::kUrgent, anna).ok());  // it is
  EXPECT_FALSE(set("job-2", Priority::kUrgent, anna).ok());
  EXPECT_FALSE(AddJob(anna, "vision", Priority::kUrgent).ok());
  EXPECT_TRUE(set("job-2", Priority::kUrgent, {.admin = true}).ok());
  EXPECT_EQ(**check_->Used(Limit::kUrgentJobs, {.owner = "anna"}), 2);
  EXPECT_TRUE(set("job-1", Priority::kNormal, anna).ok());
  EXPECT_TRUE(set("job-2", Priority::kNormal, anna).ok());
  EXPECT_TRUE(AddJob(anna, "vision", Priority::kUrgent).ok());
}

TEST_F(LimitsTest, BytesOfCheckpointsAndWhatElseIsKept) {
  const Caller anna = Member("anna");
  ASSERT_TRUE(AddJob(anna).ok());
  ASSERT_TRUE(
      store_
          ->AddCheckpoint("job-1", {.step = 1, .path = "p", .size_bytes = 600})
          .ok());
  EXPECT_TRUE(check_->CheckRoom(anna, "vision", 1'000'000).ok());
  ASSERT_TRUE(Set("user:anna", "disk_bytes", 1000).ok());
  EXPECT_TRUE(check_->CheckRoom(anna, "vision", 400).ok());
  EXPECT_FALSE(check_->CheckRoom(anna, "vision", 401).ok());
  check_->SetOtherBytes(
      [](Database*, const Counted& counted) -> absl::StatusOr<int64_t> {
        return counted.owner == "anna" ? 100 : 0;
      });
  const absl::Status refused = check_->CheckRoom(anna, "vision", 301);
  EXPECT_TRUE(absl::StrContains(
      refused.message(),
      "disk_bytes of user:anna is 1000, and there are 700 bytes of "
      "checkpoints and uploads; 301 more are asked"))
      << refused;
  EXPECT_TRUE(check_->CheckRoom(Member("otto"), "vision", 301).ok());
  ASSERT_TRUE(Set("server", "queued_jobs", 0).ok());
  EXPECT_FALSE(AddJob(Member("otto")).ok());
}

TEST_F(LimitsTest, WhatOthersCountIsKnownOfEachSubject) {
  EXPECT_EQ(check_->OthersUsed()(Limit::kGpuHours, {}), std::nullopt);
  SharedUse used;
  used.gpu_hours.Add({"vision", "anna"}, 5);
  used.gpu_hours.Add({"speech", "anna"}, 2);
  used.gpu_hours.Add({"speech", "otto"}, 1);
  used.running.Add({"vision", "otto"}, 1);
  used.host_bytes.Add({"vision", "otto"}, 1000);
  check_->SetOtherUse([used] {
    return [used](Limit limit, const Counted& counted) {
      return UseOf(used, limit, counted);
    };
  });
  const LimitCheck::OtherUse now = check_->OthersUsed();
  EXPECT_EQ(now(Limit::kGpuHours, {.owner = "anna"}), 7);
  EXPECT_EQ(now(Limit::kGpuHours, {.owner = "mary"}), 0);
  EXPECT_EQ(now(Limit::kGpuHours, {.project = "speech"}), 3);
  EXPECT_EQ(now(Limit::kGpuHours, {}), 8);
  EXPECT_EQ(now(Limit::kRunningJobs, {.owner = "otto"}), 1);
  EXPECT_EQ(now(Limit::kHostBytes, {.project = "vision"}), 1000);
  EXPECT_EQ(now(Limit::kShare, {.owner = "anna"}), std::nullopt);
  EXPECT_EQ(now(Limit::kQueuedJobs, {.owner = "anna"}), std::nullopt);
}

TEST_F(LimitsTest, CallsASecond) {
  const Caller anna = Member("anna");
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(check_->CheckCall(anna).ok());
  ASSERT_TRUE(Set("user:anna", "calls_per_second", 5).ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(check_->CheckCall(anna).ok());
  const absl::Status refused = check_->CheckCall(anna);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_TRUE(absl::StrContains(refused.message(),
                                "calls_per_second of user:anna is 5"))
      << refused;
  EXPECT_TRUE(check_->CheckCall(Member("otto")).ok());
  EXPECT_TRUE(check_->CheckCall({.admin = true}).ok());
  clock_.Advance(absl::Milliseconds(200));
  EXPECT_TRUE(check_->CheckCall(anna).ok());
  EXPECT_FALSE(check_->CheckCall(anna).ok());
}

TEST_F(LimitsTest, Streams) {
  const Caller anna = Member("anna");
  const Caller admin{.principal = "uid:0", .admin = true};
  ASSERT_TRUE(Set("everybody", "open_streams", 2).ok());
  ASSERT_TRUE(Set("server", "open_streams", 4).ok());
  std::vector<StreamTicket> tickets;
  const auto open = [&](const Caller& caller) {
    auto ticket = check_->OpenStream(caller);
    if (ticket.ok()) tickets.push_back(*std::move(ticket));
    return ticket.status();
  };
  EXPECT_TRUE(open(anna).ok());
  EXPECT_TRUE(open(anna).ok());
  EXPECT_TRUE(absl::StrContains(
      open(anna).message(),
      "open_streams of everybody is 2, and there are 2 streams open"));
  EXPECT_TRUE(open(admin).ok());
  EXPECT_TRUE(open(admin).ok());
  EXPECT_TRUE(absl::StrContains(open(Member("otto")).message(),
                                "open_streams of server is 4"));
  EXPECT_TRUE(open(admin).ok());
  EXPECT_EQ(*check_->Used(Limit::kOpenStreams, {.owner = "anna"}), 2);
  EXPECT_EQ(*check_->Used(Limit::kOpenStreams, {}), 5);
  tickets.erase(tickets.begin());
  EXPECT_FALSE(open(anna).ok()) << "the server's";
  tickets.pop_back();
  EXPECT_TRUE(open(anna).ok());
  tickets.clear();
  EXPECT_EQ(*check_->Used(Limit::kOpenStreams, {}), 0);
}

}  // namespace
}  // namespace roundhouse
