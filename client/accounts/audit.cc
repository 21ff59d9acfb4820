#include "client/accounts/audit.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/accounts/account_call.h"
#include "client/tables/audit_output.h"

namespace roundhouse::client {
namespace {

constexpr int64_t kMaxPageSize = 500;

class AuditCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  // Reads pages until there are as many records as asked for.
  ExitCode Read(Session* session, v1::ListAuditResponse* all) const;

  std::string user_;
  std::string since_;
  std::string until_;
  std::string rpc_;
  std::string job_;
  std::string result_;
  int64_t limit_ = 50;
};

const CommandInfo& AuditCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "audit", "", "who did what, newest first",
      "For admins.  There is a line for each call that changed something or "
      "took something\nout, and for each that was refused; streams have one "
      "when they begin and one when\nthey end.  What failed again within a "
      "minute is one line with a count.\n\nTimes are RFC 3339 "
      "(2026-05-01T08:00:00Z), days (2026-05-01, UTC), or how long\nago (90m, "
      "12h, 7d)."};
  return info;
}

void AuditCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("user", 0, "USER", &user_,
                   "what this user did, or a uid as uid:1000");
  flags->AddString("since", 0, "TIME", &since_, "what was done from then on");
  flags->AddString("until", 0, "TIME", &until_, "what was done before then");
  flags->AddString("rpc", 0, "RPC", &rpc_,
                   "calls of this name, such as SetUser");
  flags->AddString("job", 0, "JOB", &job_,
                   "what was done to this job; also a user, a project, a path");
  flags->AddString("result", 0, "RESULT", &result_,
                   "ok, failed, or a code such as permission_denied");
  flags->AddInt("limit", 0, "N", 0, &limit_,
                "show at most so many, 50 when not given; 0 is all");
}

absl::Status AuditCommand::CheckFlags() {
  for (const auto& [flag, text] :
       {std::pair("since", &since_), std::pair("until", &until_)}) {
    if (text->empty() || ParseWhen(*text, absl::UnixEpoch()).has_value()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --", flag, ": \"", *text,
        "\" is no time; write 2026-05-01T08:00:00Z, 2026-05-01 or 12h"));
  }
  return absl::OkStatus();
}

ExitCode AuditCommand::Read(Session* session,
                            v1::ListAuditResponse* all) const {
  const absl::Time now = session->environment().now();
  v1::ListAuditRequest request;
  request.set_user(user_);
  request.set_rpc(rpc_);
  request.set_resource(job_);
  request.set_result(absl::AsciiStrToUpper(result_));
  if (!since_.empty()) {
    *request.mutable_since() = ToTimestamp(*ParseWhen(since_, now));
  }
  if (!until_.empty()) {
    *request.mutable_until() = ToTimestamp(*ParseWhen(until_, now));
  }
  while (true) {
    const int64_t left = limit_ - all->records_size();
    request.set_page_size(static_cast<int32_t>(
        limit_ == 0 ? kMaxPageSize : std::min(left, kMaxPageSize)));
    v1::ListAuditResponse page;
    const ExitCode asked = Ask(&v1::AccountService::StubInterface::ListAudit,
                               request, "audit", session, &page);
    if (asked != ExitCode::kOk) return asked;
    all->mutable_records()->MergeFrom(page.records());
    all->set_next_page_token(page.next_page_token());
    if (page.next_page_token().empty() ||
        (limit_ > 0 && all->records_size() >= limit_)) {
      return ExitCode::kOk;
    }
    request.set_page_token(page.next_page_token());
  }
}

ExitCode AuditCommand::Run(const std::vector<std::string>&, Session* session) {
  v1::ListAuditResponse all;
  const ExitCode read = Read(session, &all);
  if (read != ExitCode::kOk) return read;
  std::vector<std::string> numbers;
  for (const v1::AuditRecord& record : all.records()) {
    numbers.push_back(absl::StrCat(record.number()));
  }
  const ExitCode shown =
      Show(all, AuditTable({all.records().begin(), all.records().end()}),
           numbers, session);
  if (!all.next_page_token().empty() &&
      session->format() == OutputFormat::kTable) {
    session->err() << "There are more; --limit=0 shows all.\n";
  }
  return shown;
}

}  // namespace

std::unique_ptr<Command> MakeAuditCommand() {
  return std::make_unique<AuditCommand>();
}

}  // namespace roundhouse::client
