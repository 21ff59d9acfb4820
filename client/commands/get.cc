#include "client/commands/get.h"

#include <ostream>

#include "base/visible_text.h"
#include "client/tables/message_json.h"

namespace roundhouse::client {
namespace {

class GetCommand : public Command {
 public:
  const CommandInfo& info() const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;
};

const CommandInfo& GetCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "get",
      "JOB",
      "one job in full",
      "With -o json: state, step, loss_history (the last 1,000 points), "
      "eval_history,\neval_samples (the newest of eval_prompts), output_path, "
      "the submitted text,\nthe resolved spec and more, named as in\n"
      "proto/roundhouse/v1/fine_tuning_job.proto.",
      1,
      1};
  return info;
}

ExitCode GetCommand::Run(const std::vector<std::string>& arguments,
                         Session* session) {
  v1::GetFineTuningJobRequest request;
  request.set_name(arguments[0]);
  v1::FineTuningJob job;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->jobs().GetFineTuningJob(context.get(), request, &job);
  if (!status.ok()) {
    return session->Fail("get " + arguments[0], status);
  }
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << JobText(job);
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(JobJson(job), 2) << "\n";
      break;
    case OutputFormat::kName:
      session->out() << VisibleLine(job.name()) << "\n";
      break;
  }
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeGetCommand() {
  return std::make_unique<GetCommand>();
}

}  // namespace roundhouse::client
