#include "server/access/gate.h"

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/access/job_names.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr absl::string_view kBearer = "bearer ";

// "" where the call shows nothing.
absl::string_view AuthorizationOf(const grpc::ServerContextBase& context) {
  const auto& shown = context.client_metadata();
  const auto found = shown.find(kAuthorization);
  if (found == shown.end()) return "";
  return absl::string_view(found->second.data(), found->second.size());
}

std::string HolderPrincipal(const TokenRecord& token) {
  return absl::StrCat("user:", token.user);
}

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

absl::Status Denied(const Rule& rule, const Caller& caller, Role has,
                    const std::string& where) {
  if (caller.scope < rule.role) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the scope of your token is ", ScopeName(caller.scope),
        ", and this takes ", ScopeName(rule.role),
        "; make another one with: roundhouse token add NAME --scope=",
        ScopeName(rule.role)));
  }
  if (rule.role == Role::kAdmin) {
    return absl::PermissionDeniedError("only an admin may do this");
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "this takes a ", RoleName(rule.role), where, ", and you are ",
      has == Role::kNone ? "not in it" : absl::StrCat("a ", RoleName(has))));
}

}  // namespace

Gate::Gate(Peers* peers, const Accounts* accounts, Tokens* tokens,
           const JobStore* store, const Clock& clock)
    : peers_(peers),
      accounts_(accounts),
      tokens_(tokens),
      store_(store),
      clock_(clock) {}

absl::StatusOr<Caller> Gate::CallerOf(uid_t uid) const {
  return UserIn(*accounts_->list(), uid);
}

absl::StatusOr<Caller> Gate::CallerOf(
    const grpc::ServerContextBase& context) const {
  ASSIGN_OR_RETURN(const Peer peer, peers_->PeerOf(context));
  if (peer.uid.has_value()) return CallerOf(*peer.uid);
  absl::StatusOr<Caller> caller = CallerFrom(peer, AuthorizationOf(context));
  if (caller.ok()) peers_->NoteToken(context.peer());
  return caller;
}

absl::StatusOr<Caller> Gate::CallerFrom(const Peer& peer,
                                        absl::string_view authorization) const {
  if (peer.uid.has_value()) return CallerOf(*peer.uid);
  const std::shared_ptr<const AccountList> list = accounts_->list();
  if (!list->in_use()) {
    return RefuseToken(
        peer, absl::UnauthenticatedError(
                  "this server has no users yet and lets nobody in over the "
                  "network; an admin adds the first one there: roundhouse user "
                  "add NAME"));
  }
  if (authorization.empty()) {
    return RefuseToken(peer,
                       absl::UnauthenticatedError(
                           "the call shows no token; get one and log in with: "
                           "roundhouse login HOST:PORT"));
  }
  // The scheme's name has no case.
  if (!absl::StartsWithIgnoreCase(authorization, kBearer)) {
    return RefuseToken(peer, absl::UnauthenticatedError(
                                 "authorization is not \"Bearer rh_...\""));
  }
  authorization.remove_prefix(kBearer.size());
  const absl::StatusOr<TokenRecord> token = tokens_->Find(authorization);
  if (!token.ok()) return RefuseToken(peer, token.status());
  return HolderIn(*list, *token);
}

absl::Status Gate::RefuseToken(const Peer& peer,
                               const absl::Status& why) const {
  const absl::Time now = clock_.WallTime();
  MutexLock lock(mutex_);
  if (refusals_.size() >= kMaxRefusedAddresses && !refusals_.contains(peer)) {
    // Whoever waits has waited for a second at most.
    refusals_.clear();
  }
  const auto bucket = refusals_.emplace(peer, TokenBucket(kRefusedTokens, now));
  if (bucket.first->second.Take(now)) return why;
  return absl::ResourceExhaustedError(
      absl::StrCat("calls without a token that works: ", kRefusedTokens,
                   " a second at most of an address; wait a moment"));
}

absl::StatusOr<Caller> Gate::CallerIn(const AccountList& list,
                                      const Caller& caller) const {
  if (caller.uid.has_value()) return UserIn(list, *caller.uid);
  ASSIGN_OR_RETURN(const TokenRecord token, tokens_->Working(caller.token));
  return HolderIn(list, token);
}

absl::StatusOr<Caller> Gate::Now(const Caller& caller) const {
  return CallerIn(*accounts_->list(), caller);
}

absl::Status Gate::IsStill(const Caller& caller) const {
  ASSIGN_OR_RETURN(const Caller now, Now(caller));
  if (now == caller) return absl::OkStatus();
  return absl::UnavailableError("what you may do has changed; call again");
}

absl::StatusOr<Caller> Gate::HolderIn(const AccountList& list,
                                      const TokenRecord& token) const {
  const UserRecord* const user = list.User(token.user);
  if (user == nullptr) {
    return absl::UnauthenticatedError(
        "the user of this token was removed; ask an admin of the server");
  }
  Caller caller{.principal = HolderPrincipal(token),
                .user = user->name,
                .admin = user->admin,
                .projects = user->projects,
                .token = token.id};
  caller.CapAt(token.scope);
  return caller;
}

absl::StatusOr<Caller> Gate::UserIn(const AccountList& list, uid_t uid) const {
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
  const absl::StatusOr<Peer> peer = peers_->PeerOf(context);
  if (!peer.ok()) return asker;
  if (!peer->uid.has_value()) {
    absl::string_view shown = AuthorizationOf(context);
    if (!absl::StartsWithIgnoreCase(shown, kBearer)) return asker;
    shown.remove_prefix(kBearer.size());
    const std::optional<TokenRecord> token = tokens_->Known(shown);
    if (!token.has_value()) return asker;
    asker.principal = HolderPrincipal(*token);
    asker.user = token->user;
    asker.token = token->id;
    return asker;
  }
  asker.principal = PrincipalOf(*peer->uid);
  const auto list = accounts_->list();
  const UserRecord* const user = list->UserOf(*peer->uid);
  if (user != nullptr) asker.user = user->name;
  return asker;
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
    return Denied(*rule, caller, has,
                  absl::StrCat(" of project ", entered.project));
  }
  if (caller.HighestRole() < rule->role) {
    return Denied(*rule, caller, caller.HighestRole(), " of a project");
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
    return Denied(rule, entered->caller, has,
                  absl::StrCat(" of project ", job.project));
  }
  if (rule.subject == Subject::kOwnJob && has < Role::kAdmin &&
      job.owner != entered->caller.owner()) {
    return absl::PermissionDeniedError(absl::StrCat(
        parsed.id, " is ", job.owner, "'s: its owner and admins may do this"));
  }
  entered->job = std::move(job);
  return absl::OkStatus();
}

}  // namespace roundhouse
