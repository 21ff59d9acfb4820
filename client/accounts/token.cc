#include "client/accounts/token.h"

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/accounts/named_things.h"
#include "client/tables/account_output.h"
#include "client/time_span.h"

namespace roundhouse::client {
namespace {

class TokenCommand : public NamedThingsCommand {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;

 private:
  ExitCode Add(const std::string& name, Session* session) const override;
  ExitCode List(const std::string& only, Session* session) const override;
  ExitCode Remove(const std::string& name, Session* session) const override;
  absl::Status CheckVerb(const std::string& verb) const override;

  std::string user_;
  std::string scope_;
  std::string expires_;
  bool all_users_ = false;
  bool dead_ = false;
  v1::Role scope_number_ = v1::ROLE_UNSPECIFIED;
  absl::Duration lifetime_ = absl::InfiniteDuration();
};

const CommandInfo& TokenCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "token",
      "add|list|show|remove [TOKEN]",
      "what you show to call over the network",
      "add makes one and prints it, once, to standard output alone: the server "
      "keeps no more\nthan its hash.  roundhouse login takes it, and so does "
      "the variable ROUNDHOUSE_TOKEN.\n\nA token may do what its user may and "
      "its scope allows: read looks at jobs, submit has\njobs, admin does "
      "whatever the user may, and manages tokens.  One that works over "
      "the\nnetwork makes none that may more or works longer than "
      "it.\n\nremove "
      "ends it within a second, on open streams too.  show and remove take a "
      "name or\nan id.",
      1,
      2};
  return info;
}

void TokenCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("user", 0, "USER", &user_,
                   "whose it is, for admins; you when not given");
  flags->AddString("scope", 0, "SCOPE", &scope_,
                   "read, submit (when not given) or admin");
  flags->AddString("expires", 0, "TIME", &expires_,
                   "how long it works: 12h, 90d; until it is removed when not "
                   "given");
  flags->AddBool("all-users", 0, &all_users_, "list everybody's, for admins");
  flags->AddBool("dead", 0, &dead_,
                 "list those that do not work any more, too");
}

absl::Status TokenCommand::CheckFlags() {
  const std::vector<std::string> scopes = {"read", "submit", "admin"};
  if (scope_ == "read") {
    scope_number_ = v1::VIEWER;
  } else if (scope_ == "submit") {
    scope_number_ = v1::MEMBER;
  } else if (scope_ == "admin") {
    scope_number_ = v1::ADMIN;
  } else if (!scope_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --scope: \"", scope_, "\" is none of read, submit, ",
                     "admin", DidYouMean(scope_, scopes)));
  }
  if (expires_.empty()) return absl::OkStatus();
  const auto lifetime = ParseTimeSpan("expires", expires_);
  if (!lifetime.ok()) return lifetime.status();
  lifetime_ = *lifetime;
  return absl::OkStatus();
}

absl::Status TokenCommand::CheckVerb(const std::string& verb) const {
  if (verb != "add" && (!scope_.empty() || !expires_.empty())) {
    return absl::InvalidArgumentError(
        "flags --scope and --expires are for add");
  }
  if (verb != "list" && (all_users_ || dead_)) {
    return absl::InvalidArgumentError(
        "flags --all-users and --dead are for list");
  }
  if (all_users_ && !user_.empty()) {
    return absl::InvalidArgumentError(
        "flags --user and --all-users exclude each other");
  }
  return absl::OkStatus();
}

ExitCode TokenCommand::Add(const std::string& name, Session* session) const {
  v1::CreateTokenRequest request;
  request.set_user(user_);
  request.set_name(name);
  request.set_scope(scope_number_);
  if (lifetime_ != absl::InfiniteDuration()) {
    const absl::Time expires = session->environment().now() + lifetime_;
    request.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(expires));
  }
  v1::CreateTokenResponse response;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::CreateToken,
                             request, "token add", session, &response);
  if (asked != ExitCode::kOk) return asked;
  if (session->format() == OutputFormat::kTable) {
    session->err() << TokenTable({response.token()})
                   << "This is the token; nobody can show it again:\n"
                   << std::flush;
  }
  return Show(response, absl::StrCat(response.text(), "\n"),
              {response.token().id()}, session);
}

ExitCode TokenCommand::List(const std::string& only, Session* session) const {
  v1::ListTokensRequest request;
  request.set_user(user_);
  request.set_all_users(all_users_);
  request.set_show_dead(dead_ || !only.empty());
  v1::ListTokensResponse response;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::ListTokens,
                             request, "token", session, &response);
  if (asked != ExitCode::kOk) return asked;
  // The first of a name is the one that works.
  for (const v1::Token& token : response.tokens()) {
    if (only.empty() || token.id() != only) continue;
    return Show(token, TokenTable({token}), {token.id()}, session);
  }
  return ShowListed(response, response.tokens(), TokenTable, only,
                    "there is no token", session);
}

ExitCode TokenCommand::Remove(const std::string& name, Session* session) const {
  v1::RevokeTokenRequest request;
  request.set_token(name);
  request.set_user(user_);
  v1::Token token;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::RevokeToken,
                             request, "token remove", session, &token);
  if (asked != ExitCode::kOk) return asked;
  return Show(token, TokenTable({token}), {token.id()}, session);
}

}  // namespace

std::unique_ptr<Command> MakeTokenCommand() {
  return std::make_unique<TokenCommand>();
}

}  // namespace roundhouse::client
