#include "server/api/account_service.h"

#include <algorithm>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/access/logins.h"
#include "server/api/audit_convert.h"
#include "server/api/convert.h"
#include "server/audit/audit_log.h"
#include "server/limits/limit_answers.h"
#include "server/spec/spec_error.h"
#include "server/usage/usage_answer.h"

namespace roundhouse {
namespace {

static_assert(static_cast<int>(Role::kNone) == v1::ROLE_UNSPECIFIED &&
              static_cast<int>(Role::kViewer) == v1::VIEWER &&
              static_cast<int>(Role::kMember) == v1::MEMBER &&
              static_cast<int>(Role::kAdmin) == v1::ADMIN);

void PutRoles(const std::map<std::string, Role>& roles,
              google::protobuf::RepeatedPtrField<v1::Membership>* out) {
  for (const auto& [project, role] : roles) {
    v1::Membership* const added = out->Add();
    added->set_project(project);
    added->set_role(static_cast<v1::Role>(role));
  }
}

// "": the caller.  kPermissionDenied unless he is an admin or it is himself.
absl::StatusOr<std::string> WhoseToken(const Caller& caller,
                                       const std::string& user) {
  const std::string whose = user.empty() ? caller.user : user;
  if (whose.empty()) {
    return FieldError(FieldReason::kMissingField, "user",
                      "you have no account of your own; say whose token: "
                      "--user=NAME");
  }
  if (whose == caller.user || caller.admin) return whose;
  return absl::PermissionDeniedError("tokens of others are an admin's affair");
}

absl::Status CheckManagesTokens(const Caller& caller) {
  if (caller.token.empty() || caller.scope == Role::kAdmin) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "the scope of your token is ", ScopeName(caller.scope),
      "; tokens are managed with one of scope admin, or on the server itself"));
}

absl::StatusOr<Role> ScopeOf(const v1::CreateTokenRequest& request) {
  switch (request.scope()) {
    case v1::ROLE_UNSPECIFIED:
    case v1::MEMBER:
      return Role::kMember;
    case v1::VIEWER:
      return Role::kViewer;
    case v1::ADMIN:
      return Role::kAdmin;
    default:
      return FieldError(FieldReason::kInvalidValue, "scope",
                        absl::StrCat("there is none of number ",
                                     static_cast<int>(request.scope())));
  }
}

absl::StatusOr<absl::Time> ExpiryOf(const google::protobuf::Timestamp& time) {
  // The years 1 to 9999, as the message's own contract has it.
  constexpr int64_t kEarliest = -62'135'596'800, kLatest = 253'402'300'799;
  if (time.seconds() < kEarliest || time.seconds() > kLatest ||
      time.nanos() < 0 || time.nanos() > 999'999'999) {
    return FieldError(FieldReason::kInvalidValue, "expire_time", "is no time");
  }
  return absl::FromUnixSeconds(time.seconds()) +
         absl::Nanoseconds(time.nanos());
}

}  // namespace

absl::StatusOr<UserChange> FromProto(const v1::SetUserRequest& request) {
  UserChange change{.name = request.user(), .restore = request.restore()};
  if (!request.project().empty()) change.project = request.project();
  if (request.has_uid()) change.uid = request.uid();
  switch (request.role()) {
    case v1::ROLE_UNSPECIFIED:
    case v1::MEMBER:
      change.role = Role::kMember;
      return change;
    case v1::VIEWER:
      change.role = Role::kViewer;
      return change;
    case v1::ADMIN:
      change.role = Role::kAdmin;
      return change;
    default:
      return FieldError(FieldReason::kInvalidValue, "role",
                        absl::StrCat("there is none of number ",
                                     static_cast<int>(request.role())));
  }
}

v1::User ToProto(const UserRecord& user) {
  v1::User out;
  out.set_name(user.name);
  if (user.uid.has_value()) out.set_uid(*user.uid);
  out.set_admin(user.admin);
  PutRoles(user.projects, out.mutable_memberships());
  *out.mutable_create_time() = ToProto(user.create_time);
  if (user.remove_time.has_value()) {
    *out.mutable_remove_time() = ToProto(*user.remove_time);
  }
  return out;
}

v1::Token ToProto(const TokenRecord& token) {
  v1::Token out;
  out.set_id(token.id);
  out.set_user(token.user);
  out.set_name(token.name);
  out.set_scope(static_cast<v1::Role>(token.scope));
  *out.mutable_create_time() = ToProto(token.create_time);
  if (token.expire_time != absl::InfiniteFuture()) {
    *out.mutable_expire_time() = ToProto(token.expire_time);
  }
  if (token.last_use_time.has_value()) {
    *out.mutable_last_use_time() = ToProto(*token.last_use_time);
  }
  if (token.revoke_time.has_value()) {
    *out.mutable_revoke_time() = ToProto(*token.revoke_time);
  }
  return out;
}

v1::Project ToProto(const ProjectRecord& project, const AccountList& list) {
  v1::Project out;
  out.set_name(project.name);
  for (const auto& [name, user] : list.users) {
    const auto role = user.projects.find(project.name);
    if (role == user.projects.end()) continue;
    v1::Project::Member* const member = out.add_members();
    member->set_user(name);
    member->set_role(static_cast<v1::Role>(role->second));
  }
  *out.mutable_create_time() = ToProto(project.create_time);
  return out;
}

grpc::ServerUnaryReactor* AccountService::WhoAmI(
    grpc::CallbackServerContext* context, const v1::WhoAmIRequest* request,
    v1::WhoAmIResponse* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    const Caller& caller = entered.caller;
    response->set_principal(caller.principal);
    response->set_user(caller.user);
    response->set_admin(caller.admin);
    PutRoles(caller.projects, response->mutable_memberships());
    response->set_accounts(accounts_->list()->in_use());
    if (!caller.token.empty()) {
      const auto token = tokens_->Get(caller.user, caller.token);
      if (token.ok()) *response->mutable_token() = ToProto(*token);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccountService::ListUsers(
    grpc::CallbackServerContext* context, const v1::ListUsersRequest* request,
    v1::ListUsersResponse* response) {
  return RunUnary(context, door_, request, [=, this](const Entered&) {
    const auto list = accounts_->list();
    for (const auto& [name, user] : list->users) {
      if (user.remove_time.has_value() && !request->show_removed()) continue;
      *response->add_users() = ToProto(user);
    }
    return absl::OkStatus();
  });
}

MayChange AccountService::AdminsOnly(const Caller& caller) const {
  return [gate = door_.gate, caller](const AccountList& list) -> absl::Status {
    ASSIGN_OR_RETURN(const Caller now, gate->CallerIn(list, caller));
    if (now.admin) return absl::OkStatus();
    return absl::PermissionDeniedError("only an admin may do this");
  };
}

absl::Status AccountService::Set(const Caller& caller,
                                 const v1::SetUserRequest& request,
                                 v1::User* response) {
  ASSIGN_OR_RETURN(UserChange change, FromProto(request));
  if (!change.uid.has_value() &&
      !accounts_->list()->users.contains(change.name)) {
    change.uid = UidOfLogin(change.name);
  }
  // The first account ends that whoever asks may do everything.
  const bool stays_admin =
      caller.uid.has_value() &&
      (IsTrusted(*caller.uid) ||
       (change.role == Role::kAdmin && change.uid == caller.uid));
  const auto may = [&, admins = AdminsOnly(caller)](
                       const AccountList& list) -> absl::Status {
    if (list.in_use() || stays_admin) return admins(list);
    return absl::FailedPreconditionError(absl::StrCat(
        "with a first account only admins may change accounts, and you (",
        caller.principal,
        ") would be none; add yourself first with --role=admin, or ask as root "
        "or as the daemon's own user"));
  };
  // Whoever comes back has no token of before.
  const auto list = accounts_->list();
  const auto known = list->users.find(change.name);
  if (change.restore && known != list->users.end() &&
      known->second.remove_time.has_value()) {
    RETURN_IF_ERROR(tokens_->RevokeAllOf(change.name));
  }
  ASSIGN_OR_RETURN(const UserRecord user, accounts_->SetUser(change, may));
  *response = ToProto(user);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AccountService::SetUser(
    grpc::CallbackServerContext* context, const v1::SetUserRequest* request,
    v1::User* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return Set(entered.caller, *request, response);
  });
}

grpc::ServerUnaryReactor* AccountService::RemoveUser(
    grpc::CallbackServerContext* context, const v1::RemoveUserRequest* request,
    v1::User* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return Remove(entered.caller, *request, response);
  });
}

absl::Status AccountService::Remove(const Caller& caller,
                                    const v1::RemoveUserRequest& request,
                                    v1::User* response) {
  // Before: a user without tokens is better than tokens without a user.
  if (request.project().empty()) {
    RETURN_IF_ERROR(tokens_->RevokeAllOf(request.user()));
  }
  ASSIGN_OR_RETURN(const UserRecord user,
                   accounts_->RemoveUser(request.user(), request.project(),
                                         AdminsOnly(caller)));
  *response = ToProto(user);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AccountService::ListProjects(
    grpc::CallbackServerContext* context,
    const v1::ListProjectsRequest* request,
    v1::ListProjectsResponse* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    const auto list = accounts_->list();
    for (const auto& [name, project] : list->projects) {
      if (entered.caller.RoleIn(name) == Role::kNone) continue;
      *response->add_projects() = ToProto(project, *list);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccountService::AddProject(
    grpc::CallbackServerContext* context, const v1::AddProjectRequest* request,
    v1::Project* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    ASSIGN_OR_RETURN(
                        const ProjectRecord project,
                        accounts_->AddProject(request->project(),
                                              AdminsOnly(entered.caller)));
                    *response = ToProto(project, *accounts_->list());
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* AccountService::RemoveProject(
    grpc::CallbackServerContext* context,
    const v1::RemoveProjectRequest* request, v1::RemoveProjectResponse*) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return RemoveProject(entered.caller, request->project());
  });
}

absl::Status AccountService::RemoveProject(const Caller& caller,
                                           const std::string& project) {
  if (accounts_->list()->projects.contains(project)) {
    ASSIGN_OR_RETURN(const std::string left, disk_->FindOutputOf(project));
    if (!left.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("project: ", project, " has results or exports, ", left,
                       " for one; move them out of that folder first"));
    }
  }
  return accounts_->RemoveProject(project, AdminsOnly(caller));
}

grpc::ServerUnaryReactor* AccountService::SetLimit(
    grpc::CallbackServerContext* context, const v1::SetLimitRequest* request,
    v1::Limit* response) {
  return RunUnary(
      context, door_, request, [=, this](const Entered&) -> absl::Status {
        RETURN_IF_ERROR(limits_->Set(*accounts_->list(), request->subject(),
                                     request->limit(), request->value()));
        response->set_subject(request->subject());
        response->set_limit(request->limit());
        response->set_value(request->value());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* AccountService::RemoveLimit(
    grpc::CallbackServerContext* context, const v1::RemoveLimitRequest* request,
    v1::RemoveLimitResponse*) {
  return RunUnary(context, door_, request, [=, this](const Entered&) {
    return limits_->Remove(request->subject(), request->limit());
  });
}

grpc::ServerUnaryReactor* AccountService::ListLimits(
    grpc::CallbackServerContext* context, const v1::ListLimitsRequest* request,
    v1::ListLimitsResponse* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    const LimitSources sources{*limits_, *door_.limits};
                    ASSIGN_OR_RETURN(
                        *response,
                        entered.caller.admin
                            ? AllLimits(sources)
                            : LimitsOfCaller(sources, entered.caller));
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* AccountService::GetUsage(
    grpc::CallbackServerContext* context, const v1::GetUsageRequest* request,
    v1::GetUsageResponse* response) {
  return RunUnary(
      context, door_, request, [=, this](const Entered&) -> absl::Status {
        ASSIGN_OR_RETURN(*response, UsageAnswer(*store_, *request, WallTime()));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* AccountService::ListAudit(
    grpc::CallbackServerContext* context, const v1::ListAuditRequest* request,
    v1::ListAuditResponse* response) {
  return RunUnary(
      context, door_, request, [=, this](const Entered&) -> absl::Status {
        ASSIGN_OR_RETURN(const AuditQuery query, FromProto(*request));
        ASSIGN_OR_RETURN(const AuditPage page, door_.audit->List(query));
        for (const AuditRecord& record : page.records) {
          *response->add_records() = ToProto(record);
        }
        if (page.next_before.has_value()) {
          response->set_next_page_token(PageToken(*page.next_before));
        }
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* AccountService::ListTokens(
    grpc::CallbackServerContext* context, const v1::ListTokensRequest* request,
    v1::ListTokensResponse* response) {
  return RunUnary(
      context, door_, request,
      [=, this](const Entered& entered) -> absl::Status {
        std::string user;
        if (request->all_users()) {
          RETURN_IF_ERROR(AdminsOnly(entered.caller)(*accounts_->list()));
        } else {
          ASSIGN_OR_RETURN(user, WhoseToken(entered.caller, request->user()));
        }
        const absl::Time now = WallTime();
        for (const TokenRecord& token : tokens_->List(user)) {
          if (!token.WorksAt(now) && !request->show_dead()) continue;
          *response->add_tokens() = ToProto(token);
        }
        return absl::OkStatus();
      });
}

absl::Status AccountService::Create(const Caller& caller,
                                    const v1::CreateTokenRequest& request,
                                    v1::CreateTokenResponse* response) {
  const auto list = accounts_->list();
  if (!list->in_use()) {
    return absl::FailedPreconditionError(
        "a token is a user's, and the server has none yet; add the first with: "
        "roundhouse user add NAME");
  }
  ASSIGN_OR_RETURN(const std::string user, WhoseToken(caller, request.user()));
  if (list->User(user) == nullptr) {
    return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound,
                      "user",
                      absl::StrCat("there is no user \"",
                                   absl::CHexEscape(user.substr(0, 80)),
                                   "\"; roundhouse user list shows them"));
  }
  RETURN_IF_ERROR(CheckManagesTokens(caller));
  ASSIGN_OR_RETURN(const Role scope, ScopeOf(request));
  absl::Time expires = absl::InfiniteFuture();
  if (request.has_expire_time()) {
    ASSIGN_OR_RETURN(expires, ExpiryOf(request.expire_time()));
  }
  if (!caller.token.empty()) {
    ASSIGN_OR_RETURN(const TokenRecord own, tokens_->Working(caller.token));
    // Whoever has stolen it must not outlive it.
    expires = std::min(expires, own.expire_time);
  }
  ASSIGN_OR_RETURN(const NewToken made,
                   tokens_->Create(user, request.name(), scope, expires));
  *response->mutable_token() = ToProto(made.record);
  response->set_text(made.text);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AccountService::CreateToken(
    grpc::CallbackServerContext* context, const v1::CreateTokenRequest* request,
    v1::CreateTokenResponse* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return Create(entered.caller, *request, response);
  });
}

absl::Status AccountService::Revoke(const Caller& caller,
                                    const v1::RevokeTokenRequest& request,
                                    v1::Token* response) {
  // An admin may name anybody's by its id, whether or not he has an account.
  std::string user;
  if (!caller.admin || !tokens_->Get("", request.token()).ok()) {
    ASSIGN_OR_RETURN(user, WhoseToken(caller, request.user()));
  }
  ASSIGN_OR_RETURN(const TokenRecord token,
                   tokens_->Get(user, request.token()));
  if (token.id != caller.token) RETURN_IF_ERROR(CheckManagesTokens(caller));
  ASSIGN_OR_RETURN(const TokenRecord revoked, tokens_->Revoke(token.id));
  *response = ToProto(revoked);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AccountService::RevokeToken(
    grpc::CallbackServerContext* context, const v1::RevokeTokenRequest* request,
    v1::Token* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return Revoke(entered.caller, *request, response);
  });
}

}  // namespace roundhouse
