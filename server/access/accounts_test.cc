#include "server/access/accounts.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/manual_clock.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "server/spec/spec_error.h"
#include "server/testing/fresh_store.h"

namespace roundhouse {
namespace {

class AccountsTest : public testing::Test {
 protected:
  AccountsTest() {
    path_ = FreshStorePath();
    Open();
  }
  void Open() {
    accounts_.reset();
    store_.reset();
    store_ = *JobStore::Open({.path = path_});
    accounts_ = *Accounts::Load(store_.get(), clock_);
  }
  UserRecord Set(const UserChange& change) {
    const auto user = accounts_->SetUser(change);
    EXPECT_TRUE(user.ok()) << user.status();
    return user.value_or(UserRecord());
  }
  std::string FieldOf(const absl::Status& status) { return ErrorField(status); }
  // A job in `project`; its id.
  std::string MakeJob(const std::string& project) {
    const auto job = store_->Create({.text = "t", .project = project});
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->id : "";
  }

  std::string path_;
  ManualClock clock_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Accounts> accounts_;
};

TEST_F(AccountsTest, AFreshStoreHasNoAccountsAndOneProject) {
  const auto list = accounts_->list();
  EXPECT_FALSE(list->in_use());
  ASSERT_EQ(list->projects.size(), 1u);
  EXPECT_EQ(list->projects.begin()->first, kDefaultProject);
}

TEST_F(AccountsTest, AUserIsThereAfterARestart) {
  Set({.name = "anna", .uid = 1000});
  ASSERT_TRUE(accounts_->AddProject("vision").ok());
  Set({.name = "anna", .role = Role::kViewer, .project = "vision"});
  Open();
  const auto list = accounts_->list();
  const UserRecord* const anna = list->UserOf(1000);
  ASSERT_NE(anna, nullptr);
  EXPECT_EQ(anna->name, "anna");
  EXPECT_EQ(anna->create_time, clock_.WallTime());
  EXPECT_FALSE(anna->admin);
  EXPECT_EQ(anna->projects,
            (std::map<std::string, Role>{{"default", Role::kMember},
                                         {"vision", Role::kViewer}}));
}

// A store whose users are gone is not one that never had any.
TEST_F(AccountsTest, ALostStoreLetsNobodyInWhoWasNotBefore) {
  Set({.name = "anna", .uid = 1000});
  accounts_.reset();
  store_.reset();
  for (const char* end : {"", "-wal", "-shm", ".backup"}) {
    std::filesystem::remove(path_ + end);
  }
  for (int start = 0; start < 2; ++start) {
    Open();
    EXPECT_EQ(store_->findings().size(), start == 0 ? 1u : 0u);
    EXPECT_TRUE(accounts_->list()->users.empty());
    EXPECT_TRUE(accounts_->list()->in_use());
  }
}

TEST_F(AccountsTest, TheSameAgainChangesNothing) {
  Set({.name = "anna", .uid = 1000});
  const absl::Time before = clock_.WallTime();
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(Set({.name = "anna"}).create_time, before);
  EXPECT_EQ(accounts_->list()->User("anna")->uid, 1000u);
  ASSERT_TRUE(accounts_->AddProject("vision").ok());
  EXPECT_TRUE(accounts_->AddProject("vision").ok());
}

TEST_F(AccountsTest, ARoleReplacesTheOneBefore) {
  EXPECT_TRUE(Set({.name = "anna", .role = Role::kAdmin}).admin);
  const UserRecord member = Set({.name = "anna", .role = Role::kMember});
  EXPECT_FALSE(member.admin);
  EXPECT_EQ(member.projects.at("default"), Role::kMember);
  EXPECT_EQ(Set({.name = "anna", .role = Role::kViewer}).projects.at("default"),
            Role::kViewer);
}

TEST_F(AccountsTest, AUidIsOneUsers) {
  Set({.name = "anna", .uid = 1000});
  const auto bob = accounts_->SetUser({.name = "bob", .uid = 1000});
  EXPECT_EQ(FieldOf(bob.status()), "uid");
  EXPECT_NE(std::string(bob.status().message()).find("anna"),
            std::string::npos);
  EXPECT_EQ(accounts_->list()->User("bob"), nullptr);
  // Whoever is removed has none any more.
  ASSERT_TRUE(accounts_->RemoveUser("anna", "").ok());
  EXPECT_EQ(Set({.name = "bob", .uid = 1000}).uid, 1000u);
}

TEST_F(AccountsTest, ANameThatWasRemovedIsNobodyElses) {
  Set({.name = "anna", .uid = 1000});
  ASSERT_TRUE(accounts_->RemoveUser("anna", "").ok());
  Open();
  EXPECT_EQ(accounts_->list()->User("anna"), nullptr);
  EXPECT_EQ(accounts_->list()->UserOf(1000), nullptr);
  EXPECT_TRUE(accounts_->list()->in_use());
  EXPECT_EQ(FieldOf(accounts_->SetUser({.name = "anna"}).status()), "user");
  const UserRecord back = Set({.name = "anna", .restore = true});
  EXPECT_FALSE(back.remove_time.has_value());
  EXPECT_EQ(back.projects.size(), 1u);
}

TEST_F(AccountsTest, ARoleIsRemovedAlone) {
  ASSERT_TRUE(accounts_->AddProject("vision").ok());
  Set({.name = "anna"});
  Set({.name = "anna", .project = "vision"});
  const auto left = accounts_->RemoveUser("anna", "default");
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(left->projects.size(), 1u);
  EXPECT_FALSE(left->remove_time.has_value());
  EXPECT_TRUE(
      absl::IsNotFound(accounts_->RemoveUser("anna", "default").status()));
  EXPECT_TRUE(absl::IsNotFound(accounts_->RemoveUser("nobody", "").status()));
}

TEST_F(AccountsTest, NamesAreChecked) {
  for (const char* name :
       {"", "Anna", "1anna", "an na", "../x", "uid:1000", "a/b", "anna\n",
        "\xc3\xa4nna", "local", "a23456789012345678901234567890123"}) {
    EXPECT_EQ(FieldOf(accounts_->SetUser({.name = name}).status()), "user")
        << name;
    EXPECT_EQ(FieldOf(accounts_->AddProject(name).status()), "project") << name;
  }
  EXPECT_EQ(
      FieldOf(
          accounts_->SetUser({.name = "anna", .role = Role::kNone}).status()),
      "role");
  EXPECT_TRUE(absl::IsNotFound(
      accounts_->SetUser({.name = "anna", .project = "vison"}).status()));
  EXPECT_FALSE(accounts_->list()->in_use());
}

TEST_F(AccountsTest, AProjectWithJobsStays) {
  ASSERT_TRUE(accounts_->AddProject("vision").ok());
  Set({.name = "anna", .project = "vision"});
  const std::string job = MakeJob("vision");
  const absl::Status refused = accounts_->RemoveProject("vision");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_NE(std::string(refused.message()).find(job), std::string::npos);
  EXPECT_TRUE(absl::IsFailedPrecondition(accounts_->RemoveProject("default")));
  ASSERT_TRUE(accounts_->AddProject("speech").ok());
  Set({.name = "anna", .project = "speech"});
  ASSERT_TRUE(accounts_->RemoveProject("speech").ok());
  EXPECT_FALSE(accounts_->list()->User("anna")->projects.contains("speech"));
  EXPECT_TRUE(absl::IsNotFound(accounts_->RemoveProject("speech")));
}

TEST_F(AccountsTest, UploadsAreLikeJobs) {
  ASSERT_TRUE(accounts_->AddProject("vision").ok());
  const auto owner = [this] {
    std::string found;
    EXPECT_TRUE(store_
                    ->ReadWith([&found](Database* db) -> absl::Status {
                      ASSIGN_OR_RETURN(
                          Statement select,
                          db->Prepare("SELECT owner FROM uploads"));
                      EXPECT_TRUE(*select.Step());
                      found = select.Text(0);
                      return absl::OkStatus();
                    })
                    .ok());
    return found;
  };
  ASSERT_TRUE(store_
                  ->WriteWith([](Database* db) {
                    return db->Execute(
                        "INSERT INTO uploads VALUES ('1', 1, 'vision', "
                        "'dates', 1, 1, 'uid:1000', 0, 0, '')");
                  })
                  .ok());
  const absl::Status refused = accounts_->RemoveProject("vision");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_NE(std::string(refused.message()).find("dates"), std::string::npos);
  Set({.name = "anna", .uid = 1000});
  EXPECT_EQ(owner(), "anna");
}

TEST_F(AccountsTest, AJobsProjectMustBeThere) {
  EXPECT_TRUE(absl::IsNotFound(
      store_->Create({.text = "t", .project = "vision"}).status()));
}

TEST_F(AccountsTest, AChangeIsAskedForInTheListThatItChanges) {
  const auto first_only = [](const AccountList& list) {
    return list.in_use() ? absl::PermissionDeniedError("too late")
                         : absl::OkStatus();
  };
  EXPECT_TRUE(accounts_->SetUser({.name = "anna"}, first_only).ok());
  const uint64_t generation = accounts_->generation();
  EXPECT_TRUE(absl::IsPermissionDenied(
      accounts_->SetUser({.name = "bob"}, first_only).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(
      accounts_->RemoveUser("anna", "", first_only).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(
      accounts_->AddProject("vision", first_only).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(
      accounts_->RemoveProject("default", first_only)));
  EXPECT_EQ(accounts_->generation(), generation);
}

TEST_F(AccountsTest, JobsOfAUidBecomeItsFirstUsers) {
  const auto job = store_->Create({.text = "t", .principal = "uid:1000"});
  ASSERT_TRUE(job.ok()) << job.status();
  Set({.name = "mary", .uid = 1000});
  EXPECT_EQ(store_->Get(job->id)->owner, "mary");
  // Whoever has the uid later has no claim to them.
  Set({.name = "mary", .uid = 2000});
  Set({.name = "otto", .uid = 1000});
  EXPECT_EQ(store_->Get(job->id)->owner, "mary");
}

TEST_F(AccountsTest, WhoComesBackNeedsAUidOfHisOwn) {
  Set({.name = "anna", .uid = 1000});
  ASSERT_TRUE(accounts_->RemoveUser("anna", "").ok());
  Set({.name = "bob", .uid = 1000});
  const auto back = accounts_->SetUser({.name = "anna", .restore = true});
  EXPECT_EQ(FieldOf(back.status()), "uid");
  EXPECT_EQ(Set({.name = "anna", .uid = 1001, .restore = true}).uid, 1001u);
}

TEST_F(AccountsTest, ARefusedWriteChangesNothing) {
  absl::Status fault;
  accounts_.reset();
  store_.reset();
  store_ = *JobStore::Open({.path = path_, .fault = [&] { return fault; }});
  accounts_ = *Accounts::Load(store_.get());
  fault = absl::UnavailableError("no disk");
  EXPECT_TRUE(
      absl::IsUnavailable(accounts_->SetUser({.name = "anna"}).status()));
  EXPECT_FALSE(accounts_->list()->in_use());
  fault = absl::OkStatus();
  EXPECT_TRUE(accounts_->SetUser({.name = "anna"}).ok());
}

}  // namespace
}  // namespace roundhouse
