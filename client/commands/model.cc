#include "client/commands/model.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "base/visible_text.h"
#include "client/commands/upload.h"
#include "client/tables/message_json.h"
#include "client/tables/model_output.h"
#include "client/tables/upload_output.h"

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
  static void Print(const v1::ListModelsResponse& models,
                    const v1::ListUploadsResponse& uploads, Session* session);
  ExitCode Show(const std::string& name, Session* session) const;
};

const CommandInfo& ModelCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "model",
      "list|show|delete [MODEL]",
      "models under the data roots, of the hub's cache, jobs, uploads",
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
  grpc::Status status = session->models().ListModels(
      context.get(), v1::ListModelsRequest(), &response);
  v1::ListUploadsResponse uploads;
  if (status.ok()) {
    status = FindUploads({.kind = v1::UPLOAD_KIND_MODEL}, session, &uploads);
    const bool has_none =
        status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
    if (has_none) status = grpc::Status::OK;
  }
  if (!status.ok()) return session->Fail("model list", status);
  Print(response, uploads, session);
  if (response.truncated()) {
    session->err() << "There are more models than the server looks for.\n";
  }
  return ExitCode::kOk;
}

void ModelCommand::Print(const v1::ListModelsResponse& models,
                         const v1::ListUploadsResponse& uploads,
                         Session* session) {
  nlohmann::ordered_json json;
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << ModelTable(models);
      if (uploads.uploads().empty()) break;
      session->out() << "\n"
                     << UploadTable({uploads.uploads().begin(),
                                     uploads.uploads().end()});
      break;
    case OutputFormat::kJson:
      json = MessageJson(models);
      json["uploads"] = MessageJson(uploads)["uploads"];
      session->out() << JsonText(json, 2) << "\n";
      break;
    case OutputFormat::kName:
      for (const v1::Model& model : models.models()) {
        session->out() << VisibleLine(model.name()) << "\n";
      }
      for (const v1::Upload& upload : uploads.uploads()) {
        session->out() << VisibleLine(UploadVersionText(upload)) << "\n";
      }
      break;
  }
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
  if (what != "list" && what != "show" && what != "delete") {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", what, "\" is none of list, show, delete",
                     DidYouMean(what, {"list", "show", "delete"})));
  }
  if ((what != "list") == (arguments.size() == 2)) return absl::OkStatus();
  return absl::InvalidArgumentError(what == "list"
                                        ? "list takes no MODEL; show does"
                                        : what + " needs a MODEL");
}

ExitCode ModelCommand::Run(const std::vector<std::string>& arguments,
                           Session* session) {
  if (arguments[0] == "list") return List(session);
  const std::string& name = arguments[1];
  const UploadQuestion question{
      .kind = v1::UPLOAD_KIND_MODEL,
      .name = WithoutKind(name, v1::UPLOAD_KIND_MODEL)};
  if (arguments[0] == "delete") return DeleteUploads(question, session);
  return question.name == name ? Show(name, session)
                               : ShowUpload(question, session);
}

}  // namespace

std::unique_ptr<Command> MakeModelCommand() {
  return std::make_unique<ModelCommand>();
}

}  // namespace roundhouse::client
