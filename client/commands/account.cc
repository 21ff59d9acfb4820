#include "client/commands/account.h"

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/account_output.h"
#include "client/message_json.h"

namespace roundhouse::client {
namespace {

// A message, as the format has it.  `table` is printed for people.
template <typename Message>
ExitCode Show(const Message& message, const std::string& table,
              const std::vector<std::string>& names, Session* session) {
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << table;
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(message), 2) << "\n";
      break;
    case OutputFormat::kName:
      for (const std::string& name : names) {
        session->out() << VisibleLine(name) << "\n";
      }
      break;
  }
  return ExitCode::kOk;
}

// "add", "list", "show" or "remove", and the name behind it.
struct Wanted {
  std::string verb;
  std::string name;
};

absl::StatusOr<Wanted> ParseWanted(const std::vector<std::string>& arguments,
                                   const std::string& thing) {
  Wanted wanted{.verb = arguments[0],
                .name = arguments.size() > 1 ? arguments[1] : ""};
  const std::vector<std::string> verbs = {"add", "list", "show", "remove"};
  if (std::find(verbs.begin(), verbs.end(), wanted.verb) == verbs.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", wanted.verb, "\" is none of add, list, show, remove",
                     DidYouMean(wanted.verb, verbs)));
  }
  if (wanted.verb == "list" && !wanted.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"",
                                                   wanted.name, "\"; show ",
                                                   wanted.name, " shows one"));
  }
  if (wanted.verb != "list" && wanted.name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted.verb, " needs the name of a ", thing));
  }
  return wanted;
}

ExitCode Usage(const std::string& command, const absl::Status& status,
               Session* session) {
  session->err() << "roundhouse: " << command << ": "
                 << VisibleLine(std::string(status.message()))
                 << "\nSee: roundhouse " << command << " --help\n";
  return ExitCode::kUsage;
}

class UserCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  ExitCode Add(const std::string& name, Session* session) const;
  ExitCode List(const std::string& only, Session* session) const;
  ExitCode Remove(const std::string& name, Session* session) const;

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
      "add|list|show|remove [USER]",
      "who may use the server",
      "add makes a user, or gives one another role: viewers look at a "
      "project's jobs,\nmembers have jobs of their own in it, admins may do "
      "everything everywhere.  On the\nserver itself a user is known by the "
      "uid of the login; without --uid, a new user's\nis that of the login "
      "with the same name.\n\nThe first add ends that whoever can open the "
      "server's socket may do everything:\nfrom then on root and the daemon's "
      "own user are admins, and others are refused\nuntil they are "
      "added.\n\nremove takes a role (--project), or the user. Jobs of a user "
      "who is removed go on,\nand the name is kept, so that nobody else comes "
      "to own them.",
      1,
      2};
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

ExitCode UserCommand::Add(const std::string& name, Session* session) const {
  v1::SetUserRequest request;
  request.set_user(name);
  if (uid_ >= 0) request.set_uid(static_cast<uint32_t>(uid_));
  request.set_role(role_number_);
  request.set_project(project_);
  request.set_restore(restore_);
  v1::User user;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->accounts().SetUser(context.get(), request, &user);
  if (!status.ok()) return session->Fail("user add", status);
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
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->accounts().ListUsers(context.get(), request, &response);
  if (!status.ok()) return session->Fail("user", status);
  std::vector<v1::User> users;
  std::vector<std::string> names;
  for (const v1::User& user : response.users()) {
    if (!only.empty() && user.name() != only) continue;
    users.push_back(user);
    names.push_back(user.name());
  }
  if (only.empty()) return Show(response, UserTable(users), names, session);
  if (users.empty()) {
    return session->Fail("user show",
                         grpc::Status(grpc::StatusCode::NOT_FOUND,
                                      absl::StrCat("there is no user ", only)));
  }
  return Show(users[0], UserTable(users), names, session);
}

ExitCode UserCommand::Remove(const std::string& name, Session* session) const {
  v1::RemoveUserRequest request;
  request.set_user(name);
  request.set_project(project_);
  v1::User user;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->accounts().RemoveUser(context.get(), request, &user);
  if (!status.ok()) return session->Fail("user remove", status);
  return Show(user, UserTable({user}), {user.name()}, session);
}

ExitCode UserCommand::Run(const std::vector<std::string>& arguments,
                          Session* session) {
  const absl::StatusOr<Wanted> wanted = ParseWanted(arguments, "user");
  if (!wanted.ok()) return Usage("user", wanted.status(), session);
  if (wanted->verb == "add") return Add(wanted->name, session);
  if (wanted->verb == "remove") return Remove(wanted->name, session);
  return List(wanted->name, session);
}

class ProjectCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  ExitCode Add(const std::string& name, Session* session) const;
  ExitCode List(const std::string& only, Session* session) const;
  ExitCode Remove(const std::string& name, Session* session) const;

  std::string group_;
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

void ProjectCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("group", 0, "GROUP", &group_,
                   "the Unix group of files that the project's jobs write");
}

ExitCode ProjectCommand::Add(const std::string& name, Session* session) const {
  v1::AddProjectRequest request;
  request.set_project(name);
  request.set_unix_group(group_);
  v1::Project project;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->accounts().AddProject(context.get(), request, &project);
  if (!status.ok()) return session->Fail("project add", status);
  return Show(project, ProjectTable({project}), {project.name()}, session);
}

ExitCode ProjectCommand::List(const std::string& only, Session* session) const {
  v1::ListProjectsResponse response;
  UnaryContext context(session->interrupt());
  const grpc::Status status = session->accounts().ListProjects(
      context.get(), v1::ListProjectsRequest(), &response);
  if (!status.ok()) return session->Fail("project", status);
  std::vector<v1::Project> projects;
  std::vector<std::string> names;
  for (const v1::Project& project : response.projects()) {
    if (!only.empty() && project.name() != only) continue;
    projects.push_back(project);
    names.push_back(project.name());
  }
  if (only.empty()) {
    return Show(response, ProjectTable(projects), names, session);
  }
  if (projects.empty()) {
    return session->Fail(
        "project show",
        grpc::Status(grpc::StatusCode::NOT_FOUND,
                     absl::StrCat("you have a role in no project ", only)));
  }
  return Show(projects[0], ProjectTable(projects), names, session);
}

ExitCode ProjectCommand::Remove(const std::string& name,
                                Session* session) const {
  v1::RemoveProjectRequest request;
  request.set_project(name);
  v1::RemoveProjectResponse response;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->accounts().RemoveProject(context.get(), request, &response);
  if (!status.ok()) return session->Fail("project remove", status);
  return Show(response, absl::StrCat("Removed ", VisibleLine(name), ".\n"),
              {name}, session);
}

ExitCode ProjectCommand::Run(const std::vector<std::string>& arguments,
                             Session* session) {
  const absl::StatusOr<Wanted> wanted = ParseWanted(arguments, "project");
  if (!wanted.ok()) return Usage("project", wanted.status(), session);
  if (wanted->verb == "add") return Add(wanted->name, session);
  if (wanted->verb == "remove") return Remove(wanted->name, session);
  return List(wanted->name, session);
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
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->accounts().WhoAmI(context.get(), v1::WhoAmIRequest(), &response);
  if (!status.ok()) return session->Fail("whoami", status);
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
