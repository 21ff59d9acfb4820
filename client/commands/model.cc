#include "client/commands/model.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/message_json.h"
#include "client/model_output.h"

namespace roundhouse::client {
namespace {

class ModelCommand : public Command {
 public:
  const CommandInfo& info() const override;
  absl::Status CheckArguments(
      const std::vector<std::string>& arguments) const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  ExitCode List(Session* session) const;
  ExitCode Show(const std::string& name, Session* session) const;
};

const CommandInfo& ModelCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "model",
      "list|show [MODEL]",
      "models under the data roots, of the hub's cache and of jobs",
      "FULL and LORA are the host memory that a job with default settings "
      "needs; \"no\"\nwhere that is more than the server has.\n\nMODEL is what "
      "a job file's model_name_or_path may be: a path,\njob:NAME or a hub id.",
      1,
      2};
  return info;
}

ExitCode ModelCommand::List(Session* session) const {
  v1::ListModelsResponse response;
  UnaryContext context(session->interrupt());
  const grpc::Status status = session->models().ListModels(
      context.get(), v1::ListModelsRequest(), &response);
  if (!status.ok()) return session->Fail("model list", status);
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << ModelTable(response);
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(response), 2) << "\n";
      break;
    case OutputFormat::kName:
      for (const v1::Model& model : response.models()) {
        session->out() << VisibleLine(model.name()) << "\n";
      }
      break;
  }
  if (response.truncated()) {
    session->err() << "There are more models than the server looks for.\n";
  }
  return ExitCode::kOk;
}

ExitCode ModelCommand::Show(const std::string& name, Session* session) const {
  v1::GetModelRequest request;
  request.set_name(name);
  v1::Model model;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->models().GetModel(context.get(), request, &model);
  if (!status.ok()) return session->Fail("model show " + name, status);
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << ModelText(model);
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(model), 2) << "\n";
      break;
    case OutputFormat::kName:
      session->out() << VisibleLine(model.name()) << "\n";
      break;
  }
  return ExitCode::kOk;
}

absl::Status ModelCommand::CheckArguments(
    const std::vector<std::string>& arguments) const {
  const std::string& what = arguments[0];
  if (what != "list" && what != "show") {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", what, "\" is neither list nor show",
                     DidYouMean(what, {"list", "show"})));
  }
  if ((what == "show") == (arguments.size() == 2)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      what == "show" ? "show needs a MODEL" : "list takes no MODEL; show does");
}

ExitCode ModelCommand::Run(const std::vector<std::string>& arguments,
                           Session* session) {
  return arguments[0] == "list" ? List(session) : Show(arguments[1], session);
}

}  // namespace

std::unique_ptr<Command> MakeModelCommand() {
  return std::make_unique<ModelCommand>();
}

}  // namespace roundhouse::client
