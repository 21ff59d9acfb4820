#include "client/tables/account_output.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

using Row = std::vector<std::string>;

std::string RoleText(v1::Role role) {
  return absl::AsciiStrToLower(v1::Role_Name(role));
}

// "vision: member, speech: viewer"; "-" without one.
template <typename Memberships>
std::string MembershipText(const Memberships& memberships) {
  std::vector<std::string> parts;
  for (const v1::Membership& membership : memberships) {
    parts.push_back(
        absl::StrCat(membership.project(), ": ", RoleText(membership.role())));
  }
  return parts.empty() ? "-" : absl::StrJoin(parts, ", ");
}

std::string ScopeText(v1::Role scope) {
  switch (scope) {
    case v1::VIEWER:
      return "read";
    case v1::MEMBER:
      return "submit";
    default:
      return RoleText(scope);
  }
}

std::string DayText(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d", TimeOf(time), absl::UTCTimeZone());
}

}  // namespace

std::string UserTable(const std::vector<v1::User>& users) {
  std::vector<Row> rows = {{"USER", "UID", "ROLE", "SINCE"}};
  for (const v1::User& user : users) {
    std::string role =
        user.admin() ? "admin" : MembershipText(user.memberships());
    if (user.has_remove_time()) {
      role = absl::StrCat("removed ", DayText(user.remove_time()));
    }
    rows.push_back({user.name(),
                    user.has_uid() ? absl::StrCat(user.uid()) : "-", role,
                    DayText(user.create_time())});
  }
  return FormatTable(rows);
}

std::string TokenTable(const std::vector<v1::Token>& tokens) {
  std::vector<Row> rows = {
      {"TOKEN", "USER", "SCOPE", "EXPIRES", "LAST USED", "ID"}};
  for (const v1::Token& token : tokens) {
    std::string expires =
        token.has_expire_time() ? DayText(token.expire_time()) : "never";
    if (token.has_revoke_time()) {
      expires = absl::StrCat("removed ", DayText(token.revoke_time()));
    }
    rows.push_back(
        {token.name(), token.user(), ScopeText(token.scope()), expires,
         token.has_last_use_time() ? DayText(token.last_use_time()) : "never",
         token.id()});
  }
  return FormatTable(rows);
}

std::string ProjectTable(const std::vector<v1::Project>& projects) {
  std::vector<Row> rows = {{"PROJECT", "MEMBERS"}};
  for (const v1::Project& project : projects) {
    std::vector<std::string> members;
    for (const v1::Project::Member& member : project.members()) {
      members.push_back(
          absl::StrCat(member.user(), " (", RoleText(member.role()), ")"));
    }
    rows.push_back(
        {project.name(), members.empty() ? "-" : absl::StrJoin(members, ", ")});
  }
  return FormatTable(rows);
}

std::string LimitTable(const std::vector<v1::Limit>& limits) {
  std::vector<Row> rows = {{"SUBJECT", "LIMIT", "VALUE", "USED", "SET BY"}};
  for (const v1::Limit& limit : limits) {
    const auto text = [&limit](int64_t value) {
      return absl::StrContains(limit.limit(), "bytes") ? FormatBytes(value)
                                                       : absl::StrCat(value);
    };
    rows.push_back({limit.subject(), limit.limit(), text(limit.value()),
                    limit.has_used() ? text(limit.used()) : "-",
                    limit.built_in() ? "the server" : "an admin"});
  }
  return FormatTable(rows);
}

std::string UsageTable(const v1::GetUsageResponse& usage, v1::UsageSubject by) {
  const auto hours = [](double value) {
    return absl::StrFormat("%.2f", value);
  };
  const auto named = [by](const std::string& user, const std::string& project,
                          const std::string& job) -> Row {
    if (by == v1::USAGE_BY_USER) return {user};
    if (by == v1::USAGE_BY_PROJECT) return {project};
    return {job, user, project};
  };
  const auto add = [](Row row, Row numbers) {
    row.insert(row.end(), numbers.begin(), numbers.end());
    return row;
  };
  std::vector<Row> rows = {add(named("USER", "PROJECT", "JOB"),
                               {"DEVICE HOURS", "HOST GiB HOURS", "SHARE"})};
  for (const v1::Usage& one : usage.usage()) {
    const std::string job = one.job().empty() ? "-" : one.job();
    rows.push_back(add(named(one.user(), one.project(), job),
                       {hours(one.device_hours()), hours(one.host_gib_hours()),
                        absl::StrFormat("%.1f %%", 100 * one.device_share())}));
  }
  rows.push_back(
      add(by == v1::USAGE_BY_JOB ? Row{"all", "", ""} : Row{"all"},
          {hours(usage.device_hours()), hours(usage.host_gib_hours()), ""}));
  return FormatTable(rows);
}

std::string WhoAmIText(const v1::WhoAmIResponse& caller) {
  std::string text = caller.user().empty()
                         ? absl::StrCat(VisibleLine(caller.principal()), "\n")
                         : absl::StrCat(VisibleLine(caller.user()), " (",
                                        VisibleLine(caller.principal()), ")\n");
  if (!caller.accounts()) {
    absl::StrAppend(&text,
                    "The server has no accounts: whoever can open its socket "
                    "may do everything.\n");
  } else if (caller.admin()) {
    absl::StrAppend(&text, "An admin.\n");
  } else {
    absl::StrAppend(&text, VisibleLine(MembershipText(caller.memberships())),
                    "\n");
  }
  if (caller.has_token()) {
    absl::StrAppend(&text, "By token ", VisibleLine(caller.token().name()),
                    " of scope ", ScopeText(caller.token().scope()), ".\n");
  }
  return text;
}

}  // namespace roundhouse::client
