// `roundhouse user`, `project` and `whoami` against a server on a Unix socket.
#include <nlohmann/json.hpp>
#include <string>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

v1::User MakeUser(const std::string& name) {
  v1::User user;
  user.set_name(name);
  user.mutable_create_time()->set_seconds(1'700'000'000);
  return user;
}

class AccountCommandTest : public ClientTest {
 protected:
  AccountCommandTest() {
    server_.answers().set_user = [this](const v1::SetUserRequest& request,
                                        v1::User* user) {
      set_ = request;
      *user = MakeUser(request.user());
      if (request.has_uid()) user->set_uid(request.uid());
      user->set_admin(request.role() == v1::ADMIN);
      if (user->admin()) return grpc::Status::OK;
      v1::Membership* const membership = user->add_memberships();
      membership->set_project(request.project().empty() ? "default"
                                                        : request.project());
      membership->set_role(request.role() == v1::VIEWER ? v1::VIEWER
                                                        : v1::MEMBER);
      return grpc::Status::OK;
    };
    server_.answers().users = [this](const v1::ListUsersRequest& request,
                                     v1::ListUsersResponse* response) {
      listed_ = request;
      *response->add_users() = MakeUser("anna");
      *response->add_users() = MakeUser("bob");
      return grpc::Status::OK;
    };
  }

  v1::SetUserRequest set_;
  v1::ListUsersRequest listed_;
};

TEST_F(AccountCommandTest, AddSaysWhatTheUserMay) {
  EXPECT_EQ(Run({"user", "add", "anna", "--uid=1000", "--role", "viewer",
                 "--project=vision"}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(set_.user(), "anna");
  EXPECT_EQ(set_.uid(), 1000u);
  EXPECT_EQ(set_.role(), v1::VIEWER);
  EXPECT_EQ(set_.project(), "vision");
  EXPECT_FALSE(set_.restore());
  EXPECT_EQ(out(),
            "USER  UID   ROLE            SINCE\n"
            "anna  1000  vision: viewer  2023-11-14\n");
}

TEST_F(AccountCommandTest, AUserWithoutALoginIsPointedOut) {
  EXPECT_EQ(Run({"user", "add", "anna", "--role=Admin"}), ExitCode::kOk);
  EXPECT_FALSE(set_.has_uid());
  EXPECT_NE(err().find("no login \"anna\""), std::string::npos) << err();
  EXPECT_NE(out().find("anna  -    admin"), std::string::npos) << out();
}

TEST_F(AccountCommandTest, ListAndShow) {
  EXPECT_EQ(Run({"user", "list", "-o", "name"}), ExitCode::kOk);
  EXPECT_EQ(out(), "anna\nbob\n");
  EXPECT_FALSE(listed_.show_removed());
  EXPECT_EQ(Run({"user", "show", "bob", "-o", "json"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["name"], "bob");
  EXPECT_EQ(Run({"user", "show", "carl"}), ExitCode::kNotFound);
}

TEST_F(AccountCommandTest, RemoveTakesARoleOrTheUser) {
  v1::RemoveUserRequest asked;
  server_.answers().remove_user = [&](const v1::RemoveUserRequest& request,
                                      v1::User* user) {
    asked = request;
    *user = MakeUser(request.user());
    user->mutable_remove_time()->set_seconds(1'710'000'000);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"user", "remove", "anna", "--project", "vision"}),
            ExitCode::kOk);
  EXPECT_EQ(asked.project(), "vision");
  EXPECT_EQ(Run({"user", "remove", "anna"}), ExitCode::kOk);
  EXPECT_EQ(asked.project(), "");
  EXPECT_NE(out().find("removed 2024-03-09"), std::string::npos) << out();
}

TEST_F(AccountCommandTest, RightsAreLimits) {
  v1::SetLimitRequest asked;
  server_.answers().set_limit = [&](const v1::SetLimitRequest& request,
                                    v1::Limit* limit) {
    asked = request;
    limit->set_subject(request.subject());
    limit->set_limit(request.limit());
    limit->set_value(request.value());
    return grpc::Status::OK;
  };
  const struct {
    std::vector<std::string> words;
    std::string limit;
    int64_t value;
  } cases[] = {{{"user", "allow", "anna", "urgent"}, "urgent_jobs", 1},
               {{"user", "allow", "anna", "urgent", "3"}, "urgent_jobs", 3},
               {{"user", "disallow", "anna", "urgent"}, "urgent_jobs", 0},
               {{"user", "allow", "anna", "lend", "2"}, "lent_devices", 2},
               {{"user", "disallow", "anna", "lend"}, "lent_devices", 0}};
  for (const auto& [words, name, value] : cases) {
    EXPECT_EQ(Run(words), ExitCode::kOk) << err();
    EXPECT_EQ(asked.subject(), "user:anna");
    EXPECT_EQ(asked.limit(), name);
    EXPECT_EQ(asked.value(), value);
    EXPECT_NE(out().find("user:anna"), std::string::npos) << out();
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"user", "allow"},
        {"user", "allow", "anna"},
        {"user", "allow", "anna", "late"},
        {"user", "allow", "anna", "urgent", "0"},
        {"user", "allow", "anna", "urgent", "many"},
        {"user", "allow", "anna", "urgent", "--role=admin"},
        {"user", "disallow", "anna", "urgent", "1"},
        {"user", "show", "anna", "urgent"},
        {"project", "allow", "anna", "urgent"}}) {
    EXPECT_EQ(Run(words), ExitCode::kUsage) << out();
  }
}

TEST_F(AccountCommandTest, WhatIsNotUnderstoodIsUsage) {
  EXPECT_EQ(Run({"user"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"user", "lst"}), ExitCode::kUsage);
  EXPECT_NE(err().find("did you mean list?"), std::string::npos) << err();
  EXPECT_EQ(Run({"user", "add"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"user", "list", "anna"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"user", "add", "anna", "--role=membr"}), ExitCode::kUsage);
  EXPECT_NE(err().find("did you mean member?"), std::string::npos) << err();
  EXPECT_EQ(Run({"user", "add", "anna", "--uid=4294967295"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"user", "add", "anna", "--uid=-1"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"project", "delete", "x"}), ExitCode::kUsage);
  // A role is not what --role removes.
  EXPECT_EQ(Run({"user", "remove", "anna", "--role=viewer"}), ExitCode::kUsage);
  EXPECT_NE(err().find("are for add"), std::string::npos) << err();
  EXPECT_EQ(Run({"user", "list", "--project=x"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"user", "show", "anna", "--removed"}), ExitCode::kUsage);
}

TEST_F(AccountCommandTest, WhatIsNotAllowedHasItsExitCode) {
  server_.answers().set_user = [](const auto&, v1::User*) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                        "only an admin may do this");
  };
  EXPECT_EQ(Run({"user", "add", "anna"}), ExitCode::kAuth);
  EXPECT_NE(err().find("only an admin"), std::string::npos) << err();
}

TEST_F(AccountCommandTest, Projects) {
  v1::AddProjectRequest added;
  server_.answers().add_project = [&](const v1::AddProjectRequest& request,
                                      v1::Project* project) {
    added = request;
    project->set_name(request.project());
    return grpc::Status::OK;
  };
  server_.answers().projects = [](v1::ListProjectsResponse* response) {
    v1::Project* const project = response->add_projects();
    project->set_name("vision");
    v1::Project::Member* const member = project->add_members();
    member->set_user("anna");
    member->set_role(v1::MEMBER);
    return grpc::Status::OK;
  };
  std::string removed;
  server_.answers().remove_project = [&](const std::string& project) {
    removed = project;
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"project", "add", "vision"}), ExitCode::kOk);
  EXPECT_EQ(added.project(), "vision");
  EXPECT_EQ(Run({"project", "list"}), ExitCode::kOk);
  EXPECT_NE(out().find("vision   anna (member)"), std::string::npos) << out();
  EXPECT_EQ(Run({"project", "show", "speech"}), ExitCode::kNotFound);
  EXPECT_EQ(Run({"project", "remove", "vision"}), ExitCode::kOk);
  EXPECT_EQ(removed, "vision");
}

TEST_F(AccountCommandTest, WhoAmI) {
  v1::WhoAmIResponse answer;
  server_.answers().who_am_i = [&](v1::WhoAmIResponse* response) {
    *response = answer;
    return grpc::Status::OK;
  };
  answer.set_principal("uid:1000");
  answer.set_admin(true);
  EXPECT_EQ(Run({"whoami"}), ExitCode::kOk);
  EXPECT_NE(out().find("uid:1000\nThe server has no accounts"),
            std::string::npos)
      << out();
  answer.set_accounts(true);
  answer.set_admin(false);
  answer.set_user("anna");
  v1::Membership* const membership = answer.add_memberships();
  membership->set_project("vision");
  membership->set_role(v1::VIEWER);
  EXPECT_EQ(Run({"whoami"}), ExitCode::kOk);
  EXPECT_NE(out().find("anna (uid:1000)\nvision: viewer\n"), std::string::npos)
      << out();
  EXPECT_EQ(Run({"whoami", "-o", "name"}), ExitCode::kOk);
  EXPECT_NE(out().find("anna\n"), std::string::npos);
}

}  // namespace
}  // namespace roundhouse::client
