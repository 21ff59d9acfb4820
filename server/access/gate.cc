#include "server/access/gate.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/access/job_names.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

absl::Status NoAccount(uid_t uid) {
  // The system's name for him may come over a network, which would be waited
  // for on a thread of gRPC's.
  return absl::PermissionDeniedError(absl::StrCat(
      "you have no account on this server (uid ", uid,
      "); an admin adds you with: roundhouse user add NAME --uid=", uid));
}

absl::Status NotInProject(const JobRecord& job) {
  return absl::PermissionDeniedError(absl::StrCat(
      job.id, " is in project ", job.project, ", in which you have no role"));
}

absl::Status Denied(const Rule& rule, Role has, const std::string& where) {
  if (rule.role == Role::kAdmin) {
    return absl::PermissionDeniedError("only an admin may do this");
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "this takes a ", RoleName(rule.role), where, ", and you are ",
      has == Role::kNone ? "not in it" : absl::StrCat("a ", RoleName(has))));
}

}  // namespace

Gate::Gate(const Peers* peers, const Accounts* accounts, const JobStore* store)
    : peers_(peers), accounts_(accounts), store_(store) {}

absl::StatusOr<Caller> Gate::CallerOf(uid_t uid) const {
  return CallerIn(*accounts_->list(), uid);
}

absl::Status Gate::IsStill(const Caller& caller) const {
  ASSIGN_OR_RETURN(const Caller now, CallerOf(caller.uid));
  if (now == caller) return absl::OkStatus();
  return absl::UnavailableError("what you may do has changed; call again");
}

absl::StatusOr<Caller> Gate::CallerIn(const AccountList& list,
                                      uid_t uid) const {
  Caller caller{.uid = uid, .principal = PrincipalOf(uid)};
  const UserRecord* const user = list.UserOf(uid);
  if (user != nullptr) {
    caller.user = user->name;
    caller.projects = user->projects;
  }
  caller.admin =
      !list.in_use() || IsTrusted(uid) || (user != nullptr && user->admin);
  if (user == nullptr && !caller.admin) return NoAccount(uid);
  return caller;
}

Asker Gate::AskerOf(const grpc::ServerContextBase& context) const {
  Asker asker{.peer = peers_->AddressOf(context)};
  const absl::StatusOr<uid_t> uid = peers_->UidOf(context);
  if (!uid.ok()) return asker;
  asker.principal = PrincipalOf(*uid);
  const auto list = accounts_->list();
  const UserRecord* const user = list->UserOf(*uid);
  if (user != nullptr) asker.user = user->name;
  return asker;
}

absl::StatusOr<Entered> Gate::Enter(
    const grpc::ServerContextBase& context,
    const google::protobuf::Message& request) const {
  ASSIGN_OR_RETURN(const uid_t uid, peers_->UidOf(context));
  ASSIGN_OR_RETURN(const Caller caller, CallerOf(uid));
  return Enter(caller, request);
}

absl::StatusOr<Entered> Gate::Enter(
    const Caller& caller, const google::protobuf::Message& request) const {
  const Rule* const rule = RuleOf(request);
  if (rule == nullptr) {
    return absl::PermissionDeniedError(
        absl::StrCat("no rule says who may make this call: ",
                     request.GetDescriptor()->name()));
  }
  Entered entered{.caller = caller};
  const std::string resource = ResourceOf(*rule, request);
  if (rule->subject == Subject::kProject) {
    ASSIGN_OR_RETURN(entered.project,
                     ProjectMeant(caller, TextField(request, "project")));
    const Role has = caller.RoleIn(entered.project);
    if (has >= rule->role) return entered;
    return Denied(*rule, has, absl::StrCat(" of project ", entered.project));
  }
  if (caller.HighestRole() < rule->role) {
    return Denied(*rule, caller.HighestRole(), " of a project");
  }
  const bool all_jobs =
      rule->subject == Subject::kJobsOutline && resource.empty();
  if (rule->subject == Subject::kServer || all_jobs) return entered;
  RETURN_IF_ERROR(FindJob(*rule, resource, &entered));
  return entered;
}

absl::Status Gate::FindJob(const Rule& rule, const std::string& name,
                           Entered* entered) const {
  ASSIGN_OR_RETURN(const ParsedJobName parsed, ParseJobName(name));
  ASSIGN_OR_RETURN(JobRecord job, store_->Get(parsed.id));
  if (!parsed.project.empty() && parsed.project != job.project) {
    return absl::NotFoundError(
        absl::StrCat("there is no job ", parsed.id, " in project ",
                     absl::CHexEscape(parsed.project.substr(0, 80)),
                     "; it is in ", job.project));
  }
  const Role has = entered->caller.RoleIn(job.project);
  const bool stranger = has == Role::kNone;
  const bool outline = rule.subject == Subject::kJobOutline ||
                       rule.subject == Subject::kJobsOutline;
  if (stranger && !outline) {
    return NotInProject(job);
  }
  if (!stranger && has < rule.role) {
    return Denied(rule, has, absl::StrCat(" of project ", job.project));
  }
  if (rule.subject == Subject::kOwnJob && has < Role::kAdmin &&
      job.owner != entered->caller.owner()) {
    return absl::PermissionDeniedError(absl::StrCat(
        parsed.id, " is ", job.owner, "'s: its owner and admins may do this"));
  }
  entered->job = std::move(job);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ProjectMeant(const Caller& caller,
                                         const std::string& project) {
  if (!project.empty()) {
    RETURN_IF_ERROR(CheckAccountName("project", project));
    return project;
  }
  if (caller.projects.size() <= 1 ||
      caller.RoleIn(kDefaultProject) != Role::kNone) {
    const bool only = !caller.admin && caller.projects.size() == 1;
    return only ? caller.projects.begin()->first : std::string(kDefaultProject);
  }
  std::vector<std::string> names;
  for (const auto& [name, role] : caller.projects) names.push_back(name);
  return FieldError(FieldReason::kMissingField, "project",
                    absl::StrCat("you are in several, say which: ",
                                 absl::StrJoin(names, ", ")));
}

}  // namespace roundhouse
