// Who may have a device, for how long, and what a daemon that starts again
// knows of it.
#include "server/devices/device_loans.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/manual_clock.h"
#include "gtest/gtest.h"
#include "server/access/accounts.h"
#include "server/limits/limit_check.h"
#include "server/limits/limit_table.h"
#include "server/testing/fresh_store.h"

namespace roundhouse {
namespace {

constexpr absl::Time kAsLongAsMay = absl::InfiniteFuture();

class DeviceLoansTest : public testing::Test {
 protected:
  DeviceLoansTest() : path_(FreshStorePath()) {
    Open(3);
    for (const char* name : {"anna", "otto"}) {
      EXPECT_TRUE(accounts_->SetUser({.name = name}).ok());
    }
  }
  void Open(int devices) {
    loans_.reset();
    limits_.reset();
    table_.reset();
    accounts_.reset();
    store_.reset();
    store_ = *JobStore::Open({.path = path_});
    accounts_ = *Accounts::Load(store_.get());
    table_ = *LimitTable::Load(store_.get());
    limits_ = std::make_unique<LimitCheck>(table_.get(), store_.get());
    loans_ = *DeviceLoans::Load(store_.get(), DeviceLoans::KeysOf({}, devices),
                                clock_);
  }
  void Allow(const std::string& subject, int64_t devices) {
    ASSERT_TRUE(
        table_->Set(*accounts_->list(), subject, "lent_devices", devices).ok());
  }
  static Caller Member(const std::string& name) {
    return {.principal = "uid:7", .user = name};
  }
  static Caller Admin() {
    return {.principal = "uid:0", .user = "root", .admin = true};
  }
  absl::StatusOr<DeviceLoan> Lend(const Caller& caller, int device,
                                  absl::Time until = kAsLongAsMay,
                                  const std::string& note = "") {
    return loans_->Lend(caller, *limits_, device, until, note);
  }
  absl::Time now() const { return clock_.WallTime(); }

  ManualClock clock_;
  const std::string path_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<LimitTable> table_;
  std::unique_ptr<LimitCheck> limits_;
  std::unique_ptr<DeviceLoans> loans_;
};

TEST_F(DeviceLoansTest, AMemberNeedsTheRightForEachDevice) {
  const absl::Status refused = Lend(Member("anna"), 0).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(
      refused.message(), "roundhouse limit set user:anna lent_devices VALUE"))
      << refused;
  Allow("everybody", 1);
  EXPECT_TRUE(Lend(Member("anna"), 0).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Lend(Member("anna"), 1).status()));
  EXPECT_TRUE(Lend(Member("otto"), 1).ok());
  // All together.
  Allow("user:anna", 3);
  Allow("server", 2);
  EXPECT_TRUE(absl::IsResourceExhausted(Lend(Member("anna"), 2).status()));
  EXPECT_TRUE(Lend(Admin(), 2).ok());
  EXPECT_EQ(loans_->LentTo("anna"), 1);
  EXPECT_EQ(loans_->LentTo("mary"), 0);
  EXPECT_EQ(loans_->LentTo(""), 3);
  ASSERT_TRUE(loans_->Return(Admin(), 2).ok());
  ASSERT_TRUE(loans_->Fence(Admin(), 2, "").ok());
  EXPECT_EQ(loans_->LentTo(""), 2);
}

TEST_F(DeviceLoansTest, AMemberHasItForEightHoursAtMost) {
  Allow("user:anna", 1);
  const absl::Time latest = now() + kLongestMemberLoan;
  EXPECT_TRUE(absl::IsInvalidArgument(
      Lend(Member("anna"), 0, latest + absl::Seconds(1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Lend(Member("anna"), 0, now()).status()));
  const auto loan = Lend(Member("anna"), 0);
  ASSERT_TRUE(loan.ok()) << loan.status();
  EXPECT_EQ(loan->until, latest);
  // The same loan goes on: its beginning stays.
  clock_.Advance(absl::Hours(2));
  EXPECT_FALSE(Lend(Member("anna"), 0, now() + absl::Hours(7), "late").ok());
  const auto longer = Lend(Member("anna"), 0, now() + absl::Hours(6), "late");
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(longer->since, loan->since);
  EXPECT_EQ(longer->note, "late");
  const auto same = Lend(Member("anna"), 0);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(*same, *longer);
  EXPECT_EQ(Lend(Admin(), 1)->until, absl::InfiniteFuture());
}

TEST_F(DeviceLoansTest, OneThatIsOverIsNone) {
  Allow("everybody", 1);
  ASSERT_TRUE(Lend(Member("anna"), 0, now() + absl::Minutes(5)).ok());
  clock_.Advance(absl::Minutes(5));
  EXPECT_EQ(loans_->Now()[0], std::nullopt);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(loans_->Return(Member("anna"), 0).status()));
  EXPECT_TRUE(Lend(Member("anna"), 1).ok());
  // Also when the clock is set back.
  clock_.Advance(-absl::Minutes(5));
  EXPECT_EQ(loans_->Now()[0], std::nullopt);
  EXPECT_TRUE(Lend(Member("otto"), 0).ok());
}

TEST_F(DeviceLoansTest, WhoeverHasItOrAnAdminReturnsIt) {
  Allow("everybody", 3);
  ASSERT_TRUE(Lend(Member("anna"), 0, kAsLongAsMay, "demo").ok());
  const absl::Status taken = Lend(Member("otto"), 0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(taken));
  EXPECT_TRUE(absl::StrContains(taken.message(), "lent to anna until"))
      << taken;
  EXPECT_TRUE(absl::StrContains(taken.message(), "(demo)")) << taken;
  EXPECT_TRUE(absl::IsFailedPrecondition(Lend(Admin(), 0).status()));
  EXPECT_TRUE(
      absl::IsPermissionDenied(loans_->Return(Member("otto"), 0).status()));
  EXPECT_TRUE(loans_->Return(Member("anna"), 0).ok());
  ASSERT_TRUE(Lend(Member("otto"), 0).ok());
  EXPECT_EQ(loans_->Return(Admin(), 0)->owner, "otto");
  EXPECT_EQ(loans_->Now()[0], std::nullopt);
}

TEST_F(DeviceLoansTest, AFencedDeviceIsNotLent) {
  ASSERT_TRUE(loans_->Fence(Admin(), 1, "its fan is loud").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Lend(Admin(), 1).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(loans_->Return(Admin(), 1).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(loans_->Unfence(0).status()));
  EXPECT_TRUE(loans_->Unfence(1).ok());
  ASSERT_TRUE(Lend(Admin(), 1).ok());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(loans_->Fence(Admin(), 1, "").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(loans_->Unfence(1).status()));
}

TEST_F(DeviceLoansTest, WhatIsAskedIsChecked) {
  for (const int device : {-1, 3}) {
    EXPECT_TRUE(absl::IsNotFound(Lend(Admin(), device).status()));
    EXPECT_TRUE(absl::IsNotFound(loans_->Return(Admin(), device).status()));
    EXPECT_TRUE(absl::IsNotFound(loans_->Fence(Admin(), device, "").status()));
    EXPECT_TRUE(absl::IsNotFound(loans_->Unfence(device).status()));
  }
  const std::string note(kMaxLoanNoteBytes + 1, 'n');
  EXPECT_TRUE(
      absl::IsInvalidArgument(Lend(Admin(), 0, kAsLongAsMay, note).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(loans_->Fence(Admin(), 0, note).status()));
}

TEST_F(DeviceLoansTest, ADaemonThatStartsAgainKnowsThem) {
  const auto loan = Lend(Admin(), 2, now() + absl::Hours(1), "demo");
  ASSERT_TRUE(loan.ok());
  ASSERT_TRUE(loans_->Fence(Admin(), 0, "").ok());
  Open(3);
  EXPECT_EQ(loans_->Now()[2], *loan);
  EXPECT_EQ(loans_->Now()[0]->kind, DeviceLoan::Kind::kFenced);
  EXPECT_EQ(loans_->Now()[1], std::nullopt);
  // A device that is not there keeps its row.
  Open(1);
  EXPECT_EQ(loans_->Now().size(), 1u);
  Open(3);
  EXPECT_EQ(loans_->Now()[2], *loan);
}

TEST_F(DeviceLoansTest, GpusThatAreOutAreKnownBeforeDevicesAre) {
  loans_ =
      *DeviceLoans::Load(store_.get(), {"GPU-a", "GPU-a#2", "GPU-b"}, clock_);
  ASSERT_TRUE(Lend(Admin(), 1).ok());
  ASSERT_TRUE(Lend(Admin(), 2, now() + absl::Hours(1)).ok());
  EXPECT_EQ(*DeviceLoans::GpusOut(store_.get(), clock_),
            (std::set<std::string>{"GPU-a", "GPU-b"}));
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(*DeviceLoans::GpusOut(store_.get(), clock_),
            std::set<std::string>{"GPU-a"});
}

TEST_F(DeviceLoansTest, AChangeIsTold) {
  std::vector<DeviceLoanList> told;
  loans_->OnChange([&](const DeviceLoanList& list) { told.push_back(list); });
  ASSERT_TRUE(Lend(Admin(), 1).ok());
  ASSERT_TRUE(loans_->Return(Admin(), 1).ok());
  ASSERT_EQ(told.size(), 3u);
  EXPECT_FALSE(told[0][1].has_value());
  EXPECT_TRUE(told[1][1].has_value());
  EXPECT_FALSE(told[2][1].has_value());
}

class YieldedDeviceTest : public DeviceLoansTest {
 protected:
  YieldedDeviceTest() {
    loans_->OnTakenBack([this](int device) { taken_back_.push_back(device); });
    loans_->OnChange([this](const DeviceLoanList& list) { stored_ = list; });
    yields_[1] = {.kind = DeviceLoan::Kind::kYielded,
                  .owner = "uid:1000",
                  .since = now(),
                  .process = {.pid = 4711, .name = "python3"}};
    loans_->SetYields(yields_);
  }

  DeviceLoanList yields_{3};
  DeviceLoanList stored_;
  std::vector<int> taken_back_;
};

TEST_F(YieldedDeviceTest, IsInNobodysTable) {
  EXPECT_EQ(loans_->Now(), yields_);
  EXPECT_EQ(loans_->Stored(), DeviceLoanList(3));
  EXPECT_EQ(stored_, DeviceLoanList(3));
  EXPECT_TRUE(DeviceLoans::GpusOut(store_.get(), clock_)->empty());
  Open(3);
  EXPECT_EQ(loans_->Now(), DeviceLoanList(3));
}

TEST_F(YieldedDeviceTest, IsLentAndFencedAllTheSame) {
  ASSERT_TRUE(Lend(Admin(), 1, now() + absl::Hours(1)).ok());
  EXPECT_EQ(loans_->Now()[1]->kind, DeviceLoan::Kind::kLent);
  EXPECT_EQ(stored_[1]->kind, DeviceLoan::Kind::kLent);
  // Whoever returns it returns what he has, and the process keeps it.
  ASSERT_TRUE(loans_->Return(Admin(), 1).ok());
  EXPECT_TRUE(taken_back_.empty());
  EXPECT_EQ(loans_->Now(), yields_);
  ASSERT_TRUE(loans_->Fence(Admin(), 1, "").ok());
  EXPECT_EQ(loans_->Now()[1]->kind, DeviceLoan::Kind::kFenced);
  ASSERT_TRUE(loans_->Unfence(1).ok());
  EXPECT_EQ(loans_->Now(), yields_);
  EXPECT_TRUE(absl::IsFailedPrecondition(loans_->Unfence(1).status()));
  // A loan that ends by itself likewise, and one without a process is free.
  ASSERT_TRUE(Lend(Admin(), 1, now() + absl::Hours(1)).ok());
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(loans_->Now(), yields_);
  ASSERT_TRUE(Lend(Admin(), 1).ok());
  loans_->SetYields(DeviceLoanList(3));
  EXPECT_EQ(loans_->Now()[1]->kind, DeviceLoan::Kind::kLent);
  ASSERT_TRUE(loans_->Return(Admin(), 1).ok());
  EXPECT_EQ(loans_->Now()[1], std::nullopt);
}

TEST_F(YieldedDeviceTest, AnAdminTakesItBackFromTheProcess) {
  const absl::Status refused = loans_->Return(Member("anna"), 1).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(),
                                "python3 (process 4711 of uid:1000)"))
      << refused;
  EXPECT_TRUE(taken_back_.empty());
  const auto returned = loans_->Return(Admin(), 1);
  ASSERT_TRUE(returned.ok()) << returned.status();
  EXPECT_EQ(*returned, *yields_[1]);
  EXPECT_EQ(taken_back_, std::vector<int>{1});
  EXPECT_EQ(loans_->Now()[1], std::nullopt);
  EXPECT_TRUE(absl::IsFailedPrecondition(loans_->Return(Admin(), 1).status()));
}

TEST_F(YieldedDeviceTest, DoesNotCountAsOneThatAMemberHas) {
  Allow("server", 1);
  Allow("user:anna", 1);
  EXPECT_TRUE(Lend(Member("anna"), 0).ok());
}

TEST(DeviceKeysTest, AreTheDriversForGpus) {
  EXPECT_EQ(DeviceLoans::KeysOf({}, 2),
            (std::vector<std::string>{"cpu-0", "cpu-1"}));
  EXPECT_EQ(DeviceLoans::KeysOf(
                {{.uuid = "GPU-a"}, {.uuid = "GPU-b"}, {.uuid = "GPU-a"}}, 3),
            (std::vector<std::string>{"GPU-a", "GPU-b", "GPU-a#2"}));
}

}  // namespace
}  // namespace roundhouse
