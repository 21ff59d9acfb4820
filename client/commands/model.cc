#include "client/commands/model.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/upload_names.h"
#include "base/visible_text.h"
#include "client/commands/model_pull.h"
#include "client/commands/upload.h"
#include "client/tables/message_json.h"
#include "client/tables/model_output.h"
#include "client/tables/upload_output.h"

namespace roundhouse::client {
namespace {

class ModelCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  absl::Status CheckArguments(
      const std::vector<std::string>& arguments) const override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  ExitCode List(Session* session) const;
  static void Print(const v1::ListModelsResponse& models,
                    const v1::ListUploadsResponse& uploads, Session* session);
  ExitCode Show(const std::string& name, Session* session) const;

  std::string name_;
  std::string project_;
};

const CommandInfo& ModelCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "model",
      "list|show|delete|pull [MODEL]",
      "models under the data roots, of the hub's cache, jobs, uploads",
      "FULL and LORA are the host memory that a job with default settings "
      "needs; \"no\"\nwhere that is more than the server has.\n\nMODEL is what "
      "a job file's model_name_or_path may be: a path,\njob:NAME or a hub "
      "id.\n\nmodel pull ORG/NAME[@REVISION] fetches a model from the hub that "
      "the server's admin\nhas set, checks its hashes, and prints what a job "
      "file says from then on, such as\nmodel:ORG--NAME.  It counts as an "
      "upload of yours.  One that broke off goes on where\nit stopped when the "
      "same command is given again, within 7 days.",
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

void ModelCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("name", 0, "NAME", &name_,
                   "with pull: what it is called here; ORG--NAME when not "
                   "given");
  flags->AddString("project", 0, "PROJECT", &project_,
                   "with pull: whose it is; your only one, or default, when "
                   "not given");
}

absl::Status ModelCommand::CheckFlags() {
  if (name_.empty()) return absl::OkStatus();
  const absl::Status named = CheckUploadName(name_);
  if (named.ok()) return named;
  return absl::InvalidArgumentError(
      absl::StrCat("flag --name: ", named.message()));
}

absl::Status ModelCommand::CheckArguments(
    const std::vector<std::string>& arguments) const {
  const std::string& what = arguments[0];
  const std::vector<std::string> known = {"list", "show", "delete", "pull"};
  if (std::find(known.begin(), known.end(), what) == known.end()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", what, "\" is none of ",
                                                   absl::StrJoin(known, ", "),
                                                   DidYouMean(what, known)));
  }
  if (what != "pull" && !(name_.empty() && project_.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flag --", name_.empty() ? "project" : "name", " belongs to pull"));
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
  if (arguments[0] == "pull") {
    return PullModel({.model = name, .name = name_, .project = project_},
                     session);
  }
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
