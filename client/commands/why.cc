#include "client/commands/why.h"

#include <ostream>

#include "base/visible_text.h"
#include "client/tables/message_json.h"
#include "client/tables/why_output.h"

namespace roundhouse::client {
namespace {

class WhyCommand : public Command {
 public:
  const CommandInfo& info() const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;
};

const CommandInfo& WhyCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "why",
      "JOB",
      "why a job waits or is slow, and when it starts and ends",
      "What is in its way comes first: who goes before it and why, the memory "
      "or the limit\nthat is missing. Then what it had of the devices in the "
      "last minutes against its fair\nshare, and what is expected if nobody "
      "comes, goes or changes anything.\n\nJobs that you may not see have no "
      "name. With -o json all of it has fields, named as\nin "
      "proto/roundhouse/v1/explanation.proto.",
      1,
      1};
  return info;
}

ExitCode WhyCommand::Run(const std::vector<std::string>& arguments,
                         Session* session) {
  v1::ExplainFineTuningJobRequest request;
  request.set_name(arguments[0]);
  v1::ExplainFineTuningJobResponse answer;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->jobs().ExplainFineTuningJob(context.get(), request, &answer);
  if (!status.ok()) return session->Fail("why " + arguments[0], status);
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << WhyText(answer);
      break;
    case OutputFormat::kJson: {
      nlohmann::ordered_json json;
      json["job"] = BriefJobJson(answer.job());
      json["explanation"] = MessageJson(answer.explanation());
      session->out() << JsonText(json, 2) << "\n";
      break;
    }
    case OutputFormat::kName:
      session->out() << VisibleLine(answer.job().name()) << "\n";
      break;
  }
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeWhyCommand() {
  return std::make_unique<WhyCommand>();
}

}  // namespace roundhouse::client
