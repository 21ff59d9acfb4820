#include "client/commands/top.h"

#include <cstdint>
#include <optional>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/tables/message_json.h"
#include "client/tables/top_output.h"

namespace roundhouse::client {
namespace {

// Home, and from there to the screen's end nothing.
constexpr char kClearScreen[] = "\x1b[H\x1b[J";
constexpr int kMaxJobs = 50;

class TopCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  grpc::Status Look(Session* session, TopLook* look) const;
  void Show(Session* session, const TopLook& before,
            const TopLook& after) const;

  int64_t interval_ = 2;
  int64_t count_ = 0;
};

const CommandInfo& TopCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "top", "", "what devices and jobs do now",
      "On a terminal it goes on until Ctrl-C, elsewhere it shows one interval. "
      "BUSY and\nBUBBLE are shares of the interval, \"-\" where a long "
      "computation has not ended.  WAITS\nFOR says what came last of what a "
      "device needed (docs/metrics.md has the causes);\nwhat a wait is for is "
      "known when it ends."};
  return info;
}

void TopCommand::DefineFlags(FlagSet* flags) {
  flags->AddInt("interval", 0, "SECONDS", 1, &interval_,
                "the time between two looks at the server, 2 when not given");
  flags->AddInt("count", 'n', "N", 0, &count_,
                "look so many times; 0, when not given, as above");
}

absl::Status TopCommand::CheckFlags() {
  if (interval_ <= 3600) return absl::OkStatus();
  return absl::InvalidArgumentError("flag --interval: at most 3600");
}

grpc::Status TopCommand::Look(Session* session, TopLook* look) const {
  UnaryContext server_context(session->interrupt());
  grpc::Status status = session->system().GetServer(
      server_context.get(), v1::GetServerRequest(), &look->server);
  if (!status.ok()) return status;
  v1::ListDevicesResponse devices;
  UnaryContext devices_context(session->interrupt());
  status = session->system().ListDevices(devices_context.get(),
                                         v1::ListDevicesRequest(), &devices);
  if (!status.ok()) return status;
  look->time = session->environment().now();
  look->devices.assign(devices.devices().begin(), devices.devices().end());
  v1::ListFineTuningJobsRequest request;
  for (const v1::JobState state :
       {v1::VALIDATING, v1::QUEUED, v1::LOADING, v1::RUNNING, v1::PAUSING,
        v1::RECOVERING, v1::FINALIZING, v1::CANCELLING}) {
    request.add_states(state);
  }
  request.set_page_size(kMaxJobs);
  v1::ListFineTuningJobsResponse jobs;
  UnaryContext jobs_context(session->interrupt());
  status =
      session->jobs().ListFineTuningJobs(jobs_context.get(), request, &jobs);
  look->jobs.assign(jobs.jobs().begin(), jobs.jobs().end());
  return status;
}

void TopCommand::Show(Session* session, const TopLook& before,
                      const TopLook& after) const {
  if (session->format() == OutputFormat::kJson) {
    nlohmann::ordered_json json;
    json["server"] = MessageJson(after.server);
    json["devices"] = nlohmann::ordered_json::array();
    for (const v1::Device& device : after.devices) {
      json["devices"].push_back(MessageJson(device));
    }
    json["jobs"] = nlohmann::ordered_json::array();
    for (const v1::FineTuningJob& job : after.jobs) {
      json["jobs"].push_back(BriefJobJson(job));
    }
    session->out() << JsonText(json, 2) << "\n";
    return;
  }
  std::optional<int> columns;
  if (session->environment().out_is_terminal) {
    session->out() << kClearScreen;
    columns = session->environment().columns();
  }
  session->out() << TopText(before, after, columns);
  session->out().flush();
}

ExitCode TopCommand::Run(const std::vector<std::string>&, Session* session) {
  if (session->format() == OutputFormat::kName) {
    session->err() << "roundhouse: top: its output is table or json\n";
    return ExitCode::kUsage;
  }
  if (count_ == 0 && !session->environment().out_is_terminal) count_ = 1;
  TopLook before;
  grpc::Status status = Look(session, &before);
  for (int64_t shown = 0; status.ok() && (count_ == 0 || shown < count_);
       ++shown) {
    if (!session->interrupt()->Wait(absl::Seconds(interval_))) {
      return ExitCode::kOk;
    }
    TopLook after;
    status = Look(session, &after);
    if (!status.ok()) break;
    Show(session, before, after);
    before = std::move(after);
  }
  if (status.ok()) return ExitCode::kOk;
  if (session->interrupt()->requested()) return ExitCode::kOk;
  return session->Fail("top", status);
}

}  // namespace

std::unique_ptr<Command> MakeTopCommand() {
  return std::make_unique<TopCommand>();
}

}  // namespace roundhouse::client
