#include "client/accounts/limit.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/byte_size.h"
#include "base/nearest_name.h"
#include "client/accounts/account_call.h"
#include "client/tables/account_output.h"

namespace roundhouse::client {
namespace {

// A number; of bytes also "10GiB".
absl::StatusOr<int64_t> ParseValue(const std::string& limit,
                                   const std::string& text) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= 0) return value;
  if (!absl::StrContains(limit, "bytes")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no value of ", limit));
  }
  const absl::StatusOr<int64_t> bytes = ParseByteSize(text);
  if (bytes.ok()) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no value of ", limit, "; write 500GiB"));
}

class LimitCommand : public Command {
 public:
  const CommandInfo& info() const override;
  absl::Status CheckArguments(
      const std::vector<std::string>& arguments) const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  static ExitCode List(Session* session);
  static ExitCode Set(const std::vector<std::string>& arguments,
                      Session* session);
  static ExitCode Remove(const std::vector<std::string>& arguments,
                         Session* session);
};

const CommandInfo& LimitCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "limit",
      "list | set SUBJECT LIMIT VALUE | remove SUBJECT LIMIT",
      "what users and projects may take",
      "list shows the limits that hold for you, with what you use; admins see "
      "all of them,\nand set and remove them.\n\nSubjects: user:NAME, "
      "project:NAME (all that is the project's), everybody (each user\nwithout "
      "a limit of that kind of his own), server (all users together). Admins "
      "have\nno limits but the server's constants.\n\nLimits: "
      "calls_per_second, open_streams, queued_jobs (jobs that have not "
      "ended),\nrunning_jobs (others wait), gpu_hours (of devices, in the last "
      "seven days; others wait),\nhost_bytes (of host memory, of running jobs "
      "together; others wait), urgent_jobs (with\npriority: urgent), "
      "disk_bytes (checkpoints and uploads), bytes_in_flight (requests that\n"
      "are not whole), unpacked_bytes (of an upload). Bytes may be written "
      "500GiB. share is no\nbound: a user or project of share 2 gets twice "
      "the device time of one of share 1.",
      1,
      4};
  return info;
}

absl::Status LimitCommand::CheckArguments(
    const std::vector<std::string>& arguments) const {
  const std::string& verb = arguments[0];
  const std::vector<std::string> verbs = {"list", "set", "remove"};
  const auto found = std::find(verbs.begin(), verbs.end(), verb);
  if (found == verbs.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", verb, "\" is none of list, set, remove",
                     DidYouMean(verb, verbs)));
  }
  if (verb == "list" && arguments.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument \"", arguments[1], "\""));
  }
  if (verb == "set" && arguments.size() != 4) {
    return absl::InvalidArgumentError("set needs SUBJECT LIMIT VALUE");
  }
  if (verb == "remove" && arguments.size() != 3) {
    return absl::InvalidArgumentError("remove needs SUBJECT LIMIT");
  }
  return verb == "set" ? ParseValue(arguments[2], arguments[3]).status()
                       : absl::OkStatus();
}

ExitCode LimitCommand::Run(const std::vector<std::string>& arguments,
                           Session* session) {
  if (arguments[0] == "set") return Set(arguments, session);
  if (arguments[0] == "remove") return Remove(arguments, session);
  return List(session);
}

ExitCode LimitCommand::List(Session* session) {
  v1::ListLimitsResponse response;
  const ExitCode asked =
      Ask(&v1::AccountService::StubInterface::ListLimits,
          v1::ListLimitsRequest(), "limit list", session, &response);
  if (asked != ExitCode::kOk) return asked;
  std::vector<std::string> names;
  for (const v1::Limit& limit : response.limits()) {
    names.push_back(absl::StrCat(limit.subject(), " ", limit.limit()));
  }
  return Show(response,
              LimitTable({response.limits().begin(), response.limits().end()}),
              names, session);
}

ExitCode LimitCommand::Set(const std::vector<std::string>& arguments,
                           Session* session) {
  v1::SetLimitRequest request;
  request.set_subject(arguments[1]);
  request.set_limit(arguments[2]);
  request.set_value(*ParseValue(arguments[2], arguments[3]));
  v1::Limit limit;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::SetLimit,
                             request, "limit set", session, &limit);
  if (asked != ExitCode::kOk) return asked;
  return Show(limit, LimitTable({limit}),
              {absl::StrCat(limit.subject(), " ", limit.limit())}, session);
}

ExitCode LimitCommand::Remove(const std::vector<std::string>& arguments,
                              Session* session) {
  v1::RemoveLimitRequest request;
  request.set_subject(arguments[1]);
  request.set_limit(arguments[2]);
  v1::RemoveLimitResponse response;
  const ExitCode asked = Ask(&v1::AccountService::StubInterface::RemoveLimit,
                             request, "limit remove", session, &response);
  if (asked != ExitCode::kOk) return asked;
  const std::string name = absl::StrCat(arguments[1], " ", arguments[2]);
  return Show(response, absl::StrCat("Removed ", VisibleLine(name), ".\n"),
              {name}, session);
}

}  // namespace

std::unique_ptr<Command> MakeLimitCommand() {
  return std::make_unique<LimitCommand>();
}

}  // namespace roundhouse::client
