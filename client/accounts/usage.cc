#include "client/accounts/usage.h"

#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/nearest_name.h"
#include "client/accounts/account_call.h"
#include "client/tables/account_output.h"
#include "client/tables/audit_output.h"

namespace roundhouse::client {
namespace {

constexpr std::pair<const char*, v1::UsageSubject> kSubjects[] = {
    {"user", v1::USAGE_BY_USER},
    {"project", v1::USAGE_BY_PROJECT},
    {"job", v1::USAGE_BY_JOB}};

class UsageCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  std::string by_ = "user";
  std::string since_ = "7d";
  v1::UsageSubject subject_ = v1::USAGE_BY_USER;
};

const CommandInfo& UsageCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "usage", "", "what users, projects and jobs had of the server",
      "DEVICE HOURS are hours in which a device computed, for steps, "
      "evaluations and samples;\nHOST GiB HOURS are host memory times the "
      "time for which jobs held it.  SHARE is the part\nof all device hours. "
      "What is up to a minute old may be missing.\n\nTimes are RFC 3339 "
      "(2026-05-01T08:00:00Z), days (2026-05-01, UTC), or how long\nago (90m, "
      "12h, 7d), and count from the whole hour on."};
  return info;
}

void UsageCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("by", 0, "WHAT", &by_,
                   "user (when not given), project or job");
  flags->AddString("since", 0, "TIME", &since_,
                   "what was used from then on, 7d when not given");
}

absl::Status UsageCommand::CheckFlags() {
  if (!ParseWhen(since_, absl::UnixEpoch()).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --since: \"", since_,
        "\" is no time; write 2026-05-01T08:00:00Z, 2026-05-01 or 12h"));
  }
  std::vector<std::string> names;
  for (const auto& [name, subject] : kSubjects) {
    names.push_back(name);
    if (by_ != name) continue;
    subject_ = subject;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("flag --by: \"", by_, "\" is none of ",
                   absl::StrJoin(names, ", "), DidYouMean(by_, names)));
}

ExitCode UsageCommand::Run(const std::vector<std::string>&, Session* session) {
  v1::GetUsageRequest request;
  request.set_by(subject_);
  *request.mutable_since() =
      ToTimestamp(*ParseWhen(since_, session->environment().now()));
  v1::GetUsageResponse response;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::GetUsage,
                             request, "usage", session, &response);
  if (asked != ExitCode::kOk) return asked;
  std::vector<std::string> names;
  for (const v1::Usage& usage : response.usage()) {
    const std::string& name = subject_ == v1::USAGE_BY_USER ? usage.user()
                              : subject_ == v1::USAGE_BY_PROJECT
                                  ? usage.project()
                                  : usage.job();
    if (!name.empty()) names.push_back(name);
  }
  const ExitCode shown =
      Show(response, UsageTable(response, subject_), names, session);
  if (response.left_out() > 0 && session->format() == OutputFormat::kTable) {
    session->err() << response.left_out() << " that had less are left out.\n";
  }
  return shown;
}

}  // namespace

std::unique_ptr<Command> MakeUsageCommand() {
  return std::make_unique<UsageCommand>();
}

}  // namespace roundhouse::client
