// The gate and its rules, for every RPC that the API's descriptors have.
#include "server/access/gate.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/manual_clock.h"
#include "base/token_text.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/roundhouse/v1/checkpoint.pb.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "server/access/job_names.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

using google::protobuf::MessageFactory;
using google::protobuf::MethodDescriptor;

constexpr uid_t kStranger = 70'001, kViewer = 70'002, kMember = 70'003,
                kOther = 70'004, kAdminUid = 70'005, kElsewhere = 70'006;

// Every method of every service of the package, as the descriptors have them.
std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  std::set<const google::protobuf::FileDescriptor*> files;
  for (const Rule& rule : Rules()) files.insert(rule.request()->file());
  for (const auto* const file : files) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.push_back(file->service(s)->method(m));
      }
    }
  }
  return methods;
}

std::unique_ptr<google::protobuf::Message> NewRequest(
    const MethodDescriptor& method) {
  return std::unique_ptr<google::protobuf::Message>(
      MessageFactory::generated_factory()
          ->GetPrototype(method.input_type())
          ->New());
}

class GateTest : public testing::Test {
 protected:
  GateTest() : peers_({}) {
    path_ = testing::TempDir() + "/gate_test_" +
            testing::UnitTest::GetInstance()->current_test_info()->name() +
            ".db";
    for (const char* end : {"", "-wal", "-shm", ".backup"}) {
      std::filesystem::remove(path_ + end);
    }
    std::filesystem::remove(
        std::filesystem::path(path_).replace_extension(".mark"));
    store_ = *JobStore::Open({.path = path_});
    accounts_ = *Accounts::Load(store_.get(), clock_);
    tokens_ = *Tokens::Load(store_.get(), clock_);
    gate_ = std::make_unique<Gate>(&peers_, accounts_.get(), tokens_.get(),
                                   store_.get(), clock_);
  }

  // job-1 is kMember's, in project vision.
  void MakeAccounts() {
    ASSERT_TRUE(accounts_->AddProject("vision").ok());
    ASSERT_TRUE(accounts_->AddProject("speech").ok());
    const auto set = [this](const std::string& name, uid_t uid, Role role,
                            const std::string& project) {
      const auto user = accounts_->SetUser(
          {.name = name, .uid = uid, .role = role, .project = project});
      ASSERT_TRUE(user.ok()) << user.status();
    };
    set("vera", kViewer, Role::kViewer, "vision");
    set("mary", kMember, Role::kMember, "vision");
    set("otto", kOther, Role::kMember, "vision");
    set("adam", kAdminUid, Role::kAdmin, "");
    set("ella", kElsewhere, Role::kMember, "speech");
    const auto job =
        store_->Create({.text = "t", .owner = "mary", .project = "vision"});
    ASSERT_EQ(job->id, "job-1");
  }

  absl::StatusOr<Entered> Enter(uid_t uid, const MethodDescriptor& method,
                                const std::string& about = "job-1") {
    const auto caller = gate_->CallerOf(uid);
    if (!caller.ok()) return caller.status();
    return Enter(*caller, method, about);
  }

  absl::StatusOr<Entered> Enter(const Caller& caller,
                                const MethodDescriptor& method,
                                const std::string& about = "job-1") {
    const auto request = NewRequest(method);
    const Rule* const rule = RuleOf(*request);
    if (rule != nullptr && rule->resource[0] != '\0') {
      request->GetReflection()->SetString(
          request.get(), method.input_type()->FindFieldByName(rule->resource),
          about);
    }
    if (rule != nullptr && rule->subject == Subject::kProject) {
      request->GetReflection()->SetString(
          request.get(), method.input_type()->FindFieldByName("project"),
          "vision");
    }
    return gate_->Enter(caller, *request);
  }
  // Whoever shows a new token of this user.
  Caller Holder(const std::string& user, Role scope) {
    const auto made = tokens_->Create(user, RoleName(scope), scope);
    EXPECT_TRUE(made.ok()) << made.status();
    const auto caller = gate_->CallerFrom(kAddress, "Bearer " + made->text);
    EXPECT_TRUE(caller.ok()) << caller.status();
    return caller.value_or(Caller());
  }

  const Peer kAddress = Peer::OfAddress("192.0.2.7");
  std::string path_;
  ManualClock clock_;
  Peers peers_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<Tokens> tokens_;
  std::unique_ptr<Gate> gate_;
};

TEST(JobNamesTest, AFullNameAndABareId) {
  EXPECT_EQ(JobName("vision", "job-3"), "projects/vision/fineTuningJobs/job-3");
  const auto full = ParseJobName("projects/vision/fineTuningJobs/job-3");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->id, "job-3");
  EXPECT_EQ(full->project, "vision");
  const auto bare = ParseJobName("job-3");
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->id, "job-3");
  EXPECT_EQ(bare->project, "");
  for (const char* bad :
       {"", "job-", "job-0", "job--1", "job-03", "3", "job-3/x",
        "projects/x/fineTuningJobs/job-3/y", "projects//fineTuningJobs/job-3",
        "../job-3", "job-99999999999999999999"}) {
    const auto name = ParseJobName(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(name.status())) << bad;
    EXPECT_EQ(ErrorField(name.status()), "name");
  }
}

TEST(RulesTest, EveryRpcHasOneAndItsFieldIsThere) {
  const auto methods = AllMethods();
  EXPECT_EQ(methods.size(), Rules().size());
  for (const MethodDescriptor* method : methods) {
    const Rule* const rule = RuleOf(*NewRequest(*method));
    ASSERT_NE(rule, nullptr) << method->full_name();
    if (rule->resource[0] == '\0') {
      EXPECT_TRUE(rule->subject == Subject::kServer ||
                  rule->subject == Subject::kProject)
          << method->full_name();
      continue;
    }
    const auto* const field =
        method->input_type()->FindFieldByName(rule->resource);
    ASSERT_NE(field, nullptr) << method->full_name();
    EXPECT_EQ(field->cpp_type(),
              google::protobuf::FieldDescriptor::CPPTYPE_STRING);
  }
}

// What the audit keeps of a call follows from what the call does, which its
// name says.
TEST(RulesTest, WhatLooksAndWhatActs) {
  int acting = 0;
  for (const MethodDescriptor* method : AllMethods()) {
    const std::string& name = method->name();
    bool looks =
        name == "WhoAmI" || name == "PlanTraining" || name == "Diagnose";
    for (const char* word : {"Get", "List", "Watch", "Stream", "Explain"}) {
      looks = looks || absl::StartsWith(name, word);
    }
    // The call that begins a download has the row, and those that begin and end
    // an upload: pieces would fill the audit.
    if (name == "ListOutputFiles") looks = false;
    for (const char* piece :
         {"ReadOutputFile", "HashOutputFile", "UploadChunk"}) {
      looks = looks || name == piece;
    }
    const auto request = NewRequest(*method);
    const bool alike = name == "RevokeToken" || name == "ListOutputFiles" ||
                       name == "PreviewDataset" || name == "ValidateDataset";
    EXPECT_EQ(RuleOf(*request)->effect, looks   ? Effect::kLooks
                                        : alike ? Effect::kActsAlike
                                                : Effect::kActs)
        << name;
    EXPECT_EQ(RpcOf(*request),
              absl::StrCat(method->service()->name(), "/", name));
    acting += looks ? 0 : 1;
  }
  EXPECT_GE(acting, 13);
}

TEST_F(GateTest, WithoutARuleACallIsRefused) {
  const auto caller = gate_->CallerOf(0);
  ASSERT_TRUE(caller.ok());
  // A message that is no request.
  const auto entered = gate_->Enter(*caller, v1::FineTuningJob());
  EXPECT_TRUE(absl::IsPermissionDenied(entered.status()));
}

TEST_F(GateTest, WithoutAccountsEverybodyMayDoEverything) {
  const auto job = store_->Create({.text = "t", .owner = "uid:70003"});
  ASSERT_EQ(job->id, "job-1");
  for (const MethodDescriptor* method : AllMethods()) {
    const auto entered = Enter(kStranger, *method);
    EXPECT_TRUE(entered.ok()) << method->name() << ": " << entered.status();
  }
}

// Who gets in where, by the rule's own words.
TEST_F(GateTest, RoleByRpc) {
  MakeAccounts();
  struct Row {
    uid_t uid;
    Role in_vision;
    bool owns;
  };
  for (const Row& row :
       {Row{kViewer, Role::kViewer, false}, Row{kMember, Role::kMember, true},
        Row{kOther, Role::kMember, false}, Row{kAdminUid, Role::kAdmin, false},
        Row{0, Role::kAdmin, false}, Row{geteuid(), Role::kAdmin, false},
        Row{kElsewhere, Role::kNone, false}}) {
    for (const MethodDescriptor* method : AllMethods()) {
      const Rule& rule = *RuleOf(*NewRequest(*method));
      const Role anywhere =
          row.uid == kElsewhere ? Role::kMember : row.in_vision;
      bool may = anywhere >= rule.role;
      switch (rule.subject) {
        case Subject::kServer:
          break;
        case Subject::kJobOutline:
        case Subject::kJobsOutline:
          may = may &&
                (row.in_vision == Role::kNone || row.in_vision >= rule.role);
          break;
        case Subject::kOwnJob:
          may = row.in_vision == Role::kAdmin ||
                (row.in_vision >= rule.role && row.owns);
          break;
        default:
          may = row.in_vision >= rule.role;
      }
      const auto entered = Enter(row.uid, *method);
      EXPECT_EQ(entered.ok(), may)
          << row.uid << " " << method->name() << ": " << entered.status();
      if (!may) {
        EXPECT_TRUE(absl::IsPermissionDenied(entered.status()))
            << method->name() << ": " << entered.status();
      }
    }
  }
}

// A token may do what its user may and its scope allows: no more than a user
// with the lower of the two roles in each project would.
TEST_F(GateTest, RoleByScopeByRpc) {
  MakeAccounts();
  const struct {
    const char* user;
    uid_t uid;
    Role in_vision;
  } rows[] = {{"vera", kViewer, Role::kViewer},
              {"mary", kMember, Role::kMember},
              {"otto", kOther, Role::kMember},
              {"adam", kAdminUid, Role::kAdmin},
              {"ella", kElsewhere, Role::kNone}};
  for (const auto& row : rows) {
    for (const Role scope : {Role::kViewer, Role::kMember, Role::kAdmin}) {
      const Caller holder = Holder(row.user, scope);
      EXPECT_EQ(holder.user, row.user);
      EXPECT_EQ(holder.RoleIn("vision"), std::min(row.in_vision, scope));
      EXPECT_EQ(holder.admin,
                row.in_vision == Role::kAdmin && scope == Role::kAdmin);
      for (const MethodDescriptor* method : AllMethods()) {
        const Rule& rule = *RuleOf(*NewRequest(*method));
        const bool may = Enter(row.uid, *method).ok() && rule.role <= scope;
        // An admin's own right to others' jobs goes with the scope.
        const bool own_only = rule.subject == Subject::kOwnJob &&
                              row.in_vision == Role::kAdmin &&
                              scope != Role::kAdmin;
        const auto entered = Enter(holder, *method);
        EXPECT_EQ(entered.ok(), may && !own_only)
            << row.user << " " << RoleName(scope) << " " << method->name()
            << ": " << entered.status();
        if (!entered.ok()) {
          EXPECT_TRUE(absl::IsPermissionDenied(entered.status()))
              << method->name() << ": " << entered.status();
        }
      }
    }
  }
}

TEST_F(GateTest, NobodyIsLetInOverTheNetworkBeforeThereIsAUser) {
  for (const std::string& shown :
       {std::string(), "Bearer " + MakeTokenText()}) {
    const absl::Status refused = gate_->CallerFrom(kAddress, shown).status();
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
    EXPECT_NE(std::string(refused.message()).find("roundhouse user add NAME"),
              std::string::npos)
        << refused;
  }
}

TEST_F(GateTest, WhatACallShowsOverTheNetwork) {
  MakeAccounts();
  const std::string text = tokens_->Create("mary", "t", Role::kMember)->text;
  EXPECT_EQ(gate_->CallerFrom(kAddress, "Bearer " + text)->user, "mary");
  EXPECT_EQ(gate_->CallerFrom(kAddress, "bearer " + text)->user, "mary");
  const absl::Status unknown =
      gate_->CallerFrom(kAddress, "Bearer " + MakeTokenText()).status();
  for (const std::string& shown :
       {std::string(), text, "Basic " + text, "Bearer  " + text,
        "Bearer " + text + " ", "Bearer " + text.substr(1),
        std::string("Bearer "), std::string("Bearer")}) {
    const absl::Status refused = gate_->CallerFrom(kAddress, shown).status();
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << shown;
    EXPECT_EQ(std::string(refused.message()).find(text.substr(3)),
              std::string::npos)
        << "the secret is in no error";
  }
  ASSERT_TRUE(tokens_->RevokeAllOf("mary").ok());
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(gate_->CallerFrom(kAddress, "Bearer " + text).status(), unknown);
  // On the server's own socket nobody looks at it.
  EXPECT_EQ(gate_->CallerFrom(Peer(kMember), "Bearer x")->user, "mary");
}

TEST_F(GateTest, RefusedTokensOfAnAddressHaveARate) {
  MakeAccounts();
  const std::string text = tokens_->Create("mary", "t", Role::kMember)->text;
  const auto refused = [this](const Peer& peer) {
    return gate_->CallerFrom(peer, "Bearer x").status();
  };
  for (int i = 0; i < kRefusedTokens; ++i) {
    EXPECT_TRUE(absl::IsUnauthenticated(refused(kAddress)));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(refused(kAddress)));
  // Nobody else is shut out, nor whoever has one that works.
  EXPECT_TRUE(absl::IsUnauthenticated(refused(Peer::OfAddress("192.0.2.8"))));
  EXPECT_TRUE(gate_->CallerFrom(kAddress, "Bearer " + text).ok());
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(absl::IsUnauthenticated(refused(kAddress)));
}

// Streams ask this whenever there is another generation.
TEST_F(GateTest, WhatEndsAHoldersStreams) {
  MakeAccounts();
  const Caller still = Holder("mary", Role::kMember);
  const uint64_t before = gate_->generation();
  EXPECT_TRUE(gate_->IsStill(still).ok());
  ASSERT_TRUE(tokens_->Revoke(still.token).ok());
  EXPECT_NE(gate_->generation(), before);
  EXPECT_TRUE(absl::IsUnauthenticated(gate_->IsStill(still)));

  const auto made = tokens_->Create("otto", "short", Role::kMember,
                                    clock_.WallTime() + absl::Hours(1));
  const Caller holder = *gate_->CallerFrom(kAddress, "Bearer " + made->text);
  const uint64_t valid = gate_->generation();
  clock_.Advance(absl::Hours(1));
  EXPECT_NE(gate_->generation(), valid);
  EXPECT_TRUE(absl::IsUnauthenticated(gate_->IsStill(holder)));

  const Caller changed = Holder("ella", Role::kMember);
  ASSERT_TRUE(
      accounts_
          ->SetUser(
              {.name = "ella", .role = Role::kViewer, .project = "speech"})
          .ok());
  EXPECT_TRUE(absl::IsUnavailable(gate_->IsStill(changed)));
  ASSERT_TRUE(accounts_->RemoveUser("ella", "").ok());
  EXPECT_TRUE(absl::IsUnauthenticated(gate_->IsStill(changed)));
}

TEST_F(GateTest, WhoeverHasNoAccountIsToldWhatAnAdminTypes) {
  MakeAccounts();
  const auto caller = gate_->CallerOf(kStranger);
  EXPECT_TRUE(absl::IsPermissionDenied(caller.status()));
  EXPECT_NE(std::string(caller.status().message())
                .find("roundhouse user add NAME --uid=70001"),
            std::string::npos)
      << caller.status();
  ASSERT_TRUE(accounts_->RemoveUser("mary", "").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(gate_->CallerOf(kMember).status()));
}

TEST_F(GateTest, AStrangerSeesTheOutlineAlone) {
  MakeAccounts();
  v1::GetFineTuningJobRequest request;
  request.set_name("projects/vision/fineTuningJobs/job-1");
  const auto own = gate_->Enter(*gate_->CallerOf(kViewer), request);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_TRUE(own->SeesAllOf(*own->job));
  const auto stranger = gate_->Enter(*gate_->CallerOf(kElsewhere), request);
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  EXPECT_FALSE(stranger->SeesAllOf(*stranger->job));
}

TEST_F(GateTest, AJobIsInTheProjectOfItsName) {
  MakeAccounts();
  v1::GetFineTuningJobRequest request;
  request.set_name("projects/speech/fineTuningJobs/job-1");
  EXPECT_TRUE(
      absl::IsNotFound(gate_->Enter(*gate_->CallerOf(0), request).status()));
  request.set_name("job-2");
  EXPECT_TRUE(
      absl::IsNotFound(gate_->Enter(*gate_->CallerOf(0), request).status()));
  for (const char* name : {"", "job", "projects//fineTuningJobs/job-1",
                           "projects/vision/fineTuningJobs/job-1/",
                           "projects/vision/jobs/job-1", "../job-1"}) {
    request.set_name(name);
    EXPECT_TRUE(absl::IsInvalidArgument(
        gate_->Enter(*gate_->CallerOf(0), request).status()))
        << name;
  }
}

TEST_F(GateTest, AJobOfBeforeAccountsIsItsUids) {
  const auto job = store_->Create({.text = "t", .principal = "uid:70003"});
  ASSERT_EQ(job->owner, "uid:70003");
  ASSERT_TRUE(accounts_->SetUser({.name = "mary", .uid = kMember}).ok());
  ASSERT_TRUE(accounts_->SetUser({.name = "otto", .uid = kOther}).ok());
  v1::CancelFineTuningJobRequest request;
  request.set_name("job-1");
  EXPECT_TRUE(gate_->Enter(*gate_->CallerOf(kMember), request).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(
      gate_->Enter(*gate_->CallerOf(kOther), request).status()));
}

TEST_F(GateTest, TheProjectThatIsMeant) {
  const Caller admin{.admin = true};
  EXPECT_EQ(*ProjectMeant(admin, ""), "default");
  EXPECT_EQ(*ProjectMeant(admin, "vision"), "vision");
  Caller caller{.projects = {{"vision", Role::kMember}}};
  EXPECT_EQ(*ProjectMeant(caller, ""), "vision");
  caller.projects["speech"] = Role::kMember;
  EXPECT_TRUE(absl::IsInvalidArgument(ProjectMeant(caller, "").status()));
  caller.projects["default"] = Role::kViewer;
  EXPECT_EQ(*ProjectMeant(caller, ""), "default");
  EXPECT_TRUE(absl::IsInvalidArgument(ProjectMeant(caller, "../x").status()));
}

}  // namespace
}  // namespace roundhouse
