#include "client/accounts/account.h"

#include <cstdint>
#include <ostream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/accounts/account_call.h"
#include "client/accounts/named_things.h"
#include "client/tables/account_output.h"

namespace roundhouse::client {
namespace {

class UserCommand : public NamedThingsCommand {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;

 private:
  ExitCode Add(const std::string& name, Session* session) const override;
  ExitCode List(const std::string& only, Session* session) const override;
  ExitCode Remove(const std::string& name, Session* session) const override;
  absl::Status CheckVerb(const std::string& verb) const override;
  std::vector<std::string> OtherVerbs() const override {
    return {"allow", "disallow"};
  }
  absl::Status CheckOther(
      const std::vector<std::string>& arguments) const override;
  ExitCode RunOther(const std::vector<std::string>& arguments,
                    Session* session) const override;

  std::string role_;
  std::string project_;
  int64_t uid_ = -1;
  bool removed_ = false;
  bool restore_ = false;
  v1::Role role_number_ = v1::ROLE_UNSPECIFIED;
};

const CommandInfo& UserCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "user",
      "add|list|show|remove|allow|disallow [USER [urgent|lend [N]]]",
      "who may use the server, have urgent jobs and borrow devices",
      "add makes a user, or gives one another role: viewers look at a "
      "project's jobs,\nmembers have jobs of their own in it, admins may do "
      "everything everywhere.  On the\nserver itself a user is known by the "
      "uid of the login; without --uid, a new user's\nis that of the login "
      "with the same name.\n\nThe first add ends that whoever can open the "
      "server's socket may do everything:\nfrom then on root and the daemon's "
      "own user are admins, and others are refused\nuntil they are "
      "added.\n\nremove takes a role (--project), or the user. Jobs of a user "
      "who is removed go on,\nand the name is kept, so that nobody else comes "
      "to own them.\n\nallow USER urgent N lets a user have N urgent jobs at a "
      "time (1 when not given),\nallow USER lend N as many devices (device "
      "lend); disallow none.  They are limit set\nuser:USER urgent_jobs N and "
      "lent_devices N.",
      1,
      4};
  return info;
}

void UserCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("role", 0, "ROLE", &role_,
                   "viewer, member (when not given) or admin");
  flags->AddString("project", 0, "PROJECT", &project_,
                   "where the user has the role; default when not given");
  flags->AddInt("uid", 0, "UID", 0, &uid_, "the user's login on the server");
  flags->AddBool("restore", 0, &restore_,
                 "add a user again who was removed, with the old jobs");
  flags->AddBool("removed", 0, &removed_, "list those who were removed, too");
}

absl::Status UserCommand::CheckFlags() {
  if (uid_ > UINT32_MAX - int64_t{1}) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --uid: ", uid_, " is no uid"));
  }
  if (role_.empty()) return absl::OkStatus();
  if (v1::Role_Parse(absl::AsciiStrToUpper(role_), &role_number_) &&
      role_number_ != v1::ROLE_UNSPECIFIED) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "flag --role: \"", role_, "\" is none of viewer, member, admin",
      DidYouMean(absl::AsciiStrToLower(role_), {"viewer", "member", "admin"})));
}

absl::Status UserCommand::CheckVerb(const std::string& verb) const {
  if (verb != "add" && (!role_.empty() || uid_ >= 0 || restore_)) {
    return absl::InvalidArgumentError(
        "flags --role, --uid and --restore are for add");
  }
  if (verb != "add" && verb != "remove" && !project_.empty()) {
    return absl::InvalidArgumentError(
        "flag --project is for add and remove; project show says who is in "
        "one");
  }
  if (verb != "list" && removed_) {
    return absl::InvalidArgumentError("flag --removed is for list");
  }
  return absl::OkStatus();
}

ExitCode UserCommand::Add(const std::string& name, Session* session) const {
  v1::SetUserRequest request;
  request.set_user(name);
  if (uid_ >= 0) request.set_uid(static_cast<uint32_t>(uid_));
  request.set_role(role_number_);
  request.set_project(project_);
  request.set_restore(restore_);
  v1::User user;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::SetUser,
                             request, "user add", session, &user);
  if (asked != ExitCode::kOk) return asked;
  if (session->format() == OutputFormat::kTable && !user.has_uid()) {
    session->err() << "The server has no login \"" << VisibleLine(name)
                   << "\": the user is nobody on its own socket until --uid "
                      "says whose he is.\n";
  }
  return Show(user, UserTable({user}), {user.name()}, session);
}

ExitCode UserCommand::List(const std::string& only, Session* session) const {
  v1::ListUsersRequest request;
  request.set_show_removed(removed_ || !only.empty());
  v1::ListUsersResponse response;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::ListUsers,
                             request, "user", session, &response);
  if (asked != ExitCode::kOk) return asked;
  return ShowListed(response, response.users(), UserTable, only,
                    "there is no user", session);
}

ExitCode UserCommand::Remove(const std::string& name, Session* session) const {
  v1::RemoveUserRequest request;
  request.set_user(name);
  request.set_project(project_);
  v1::User user;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::RemoveUser,
                             request, "user remove", session, &user);
  if (asked != ExitCode::kOk) return asked;
  return Show(user, UserTable({user}), {user.name()}, session);
}

// The limit that the right is; "": there is no such right.
std::string LimitOfRight(const std::string& right) {
  return right == "urgent" ? "urgent_jobs"
         : right == "lend" ? "lent_devices"
                           : "";
}

absl::Status UserCommand::CheckOther(
    const std::vector<std::string>& arguments) const {
  const bool allow = arguments[0] == "allow";
  if (arguments.size() < 3 || LimitOfRight(arguments[2]).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        arguments[0], " needs USER urgent|lend", allow ? " [N]" : ""));
  }
  int64_t count = 0;
  if (arguments.size() > 3 && !allow) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument \"", arguments[3], "\""));
  }
  if (arguments.size() > 3 &&
      (!absl::SimpleAtoi(arguments[3], &count) || count < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", arguments[3], "\" is no number from 1 on"));
  }
  return absl::OkStatus();
}

ExitCode UserCommand::RunOther(const std::vector<std::string>& arguments,
                               Session* session) const {
  int64_t count = arguments[0] == "allow" ? 1 : 0;
  if (arguments.size() > 3 && !absl::SimpleAtoi(arguments[3], &count)) {
    return ExitCode::kUsage;
  }
  v1::SetLimitRequest request;
  request.set_subject(absl::StrCat("user:", arguments[1]));
  request.set_limit(LimitOfRight(arguments[2]));
  request.set_value(count);
  v1::Limit limit;
  const ExitCode asked =
      Ask(&v1::AccountService::StubInterface::SetLimit, request,
          absl::StrCat("user ", arguments[0]), session, &limit);
  if (asked != ExitCode::kOk) return asked;
  return Show(limit, LimitTable({limit}),
              {absl::StrCat(limit.subject(), " ", limit.limit())}, session);
}

class ProjectCommand : public NamedThingsCommand {
 public:
  const CommandInfo& info() const override;

 private:
  ExitCode Add(const std::string& name, Session* session) const override;
  ExitCode List(const std::string& only, Session* session) const override;
  ExitCode Remove(const std::string& name, Session* session) const override;
};

const CommandInfo& ProjectCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "project",
      "add|list|show|remove [PROJECT]",
      "what jobs and users belong to",
      "Whoever has a role in a project sees its jobs with their texts, logs "
      "and samples;\nothers see that they are there.  user add --project gives "
      "a role.  A project with\njobs is not removed.",
      1,
      2};
  return info;
}

ExitCode ProjectCommand::Add(const std::string& name, Session* session) const {
  v1::AddProjectRequest request;
  request.set_project(name);
  v1::Project project;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::AddProject,
                             request, "project add", session, &project);
  if (asked != ExitCode::kOk) return asked;
  return Show(project, ProjectTable({project}), {project.name()}, session);
}

ExitCode ProjectCommand::List(const std::string& only, Session* session) const {
  v1::ListProjectsResponse response;
  const ExitCode asked =
      Ask(&v1::AccountService::StubInterface::ListProjects,
          v1::ListProjectsRequest(), "project", session, &response);
  if (asked != ExitCode::kOk) return asked;
  return ShowListed(response, response.projects(), ProjectTable, only,
                    "you have a role in no project", session);
}

ExitCode ProjectCommand::Remove(const std::string& name,
                                Session* session) const {
  v1::RemoveProjectRequest request;
  request.set_project(name);
  v1::RemoveProjectResponse response;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::RemoveProject,
                             request, "project remove", session, &response);
  if (asked != ExitCode::kOk) return asked;
  return Show(response, absl::StrCat("Removed ", VisibleLine(name), ".\n"),
              {name}, session);
}

class WhoAmICommand : public Command {
 public:
  const CommandInfo& info() const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;
};

const CommandInfo& WhoAmICommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "whoami", "", "who you are for the server, and what you may", ""};
  return info;
}

ExitCode WhoAmICommand::Run(const std::vector<std::string>&, Session* session) {
  v1::WhoAmIResponse response;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::WhoAmI,
                             v1::WhoAmIRequest(), "whoami", session, &response);
  if (asked != ExitCode::kOk) return asked;
  return Show(
      response, WhoAmIText(response),
      {response.user().empty() ? response.principal() : response.user()},
      session);
}

}  // namespace

std::unique_ptr<Command> MakeUserCommand() {
  return std::make_unique<UserCommand>();
}

std::unique_ptr<Command> MakeProjectCommand() {
  return std::make_unique<ProjectCommand>();
}

std::unique_ptr<Command> MakeWhoAmICommand() {
  return std::make_unique<WhoAmICommand>();
}

}  // namespace roundhouse::client
