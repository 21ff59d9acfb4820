#include "client/commands/upload.h"

#include <sys/stat.h>

#include <ostream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/upload_names.h"
#include "base/visible_text.h"
#include "client/tables/message_json.h"
#include "client/tables/upload_output.h"
#include "client/transfer/upload.h"

namespace roundhouse::client {
namespace {

class UploadCommand : public Command {
 public:
  const CommandInfo& info() const override;
  void DefineFlags(FlagSet* flags) override;
  absl::Status CheckFlags() override;
  ExitCode Run(const std::vector<std::string>& arguments,
               Session* session) override;

 private:
  std::string name_;
  std::string project_;
  bool model_ = false;
};

const CommandInfo& UploadCommand::info() const {
  static const CommandInfo& info = *new CommandInfo{
      "upload",
      "FILE|DIRECTORY",
      "a dataset or a model of this machine, for job files to name",
      "Prints what a job file says from then on, such as dataset:dates.  The "
      "same name again\nmakes another version: jobs that run keep theirs, and "
      "new ones take the newest.\n\nAn upload that was cut off goes on where "
      "it "
      "stopped when the same command is given\nagain; one that nobody goes on "
      "with is gone after 7 days.  What the server has of\nthe project already "
      "is not sent.\n\nIn a directory names that begin with a '.' are left "
      "out, "
      "and links are refused.",
      1,
      1};
  return info;
}

void UploadCommand::DefineFlags(FlagSet* flags) {
  flags->AddString("name", 0, "NAME", &name_,
                   "what it is called; the file's name without its end, or the "
                   "directory's, when not given");
  flags->AddBool("model", 0, &model_,
                 "it is a model or an adapter: a directory with config.json or "
                 "adapter_config.json");
  flags->AddString("project", 0, "PROJECT", &project_,
                   "whose it is; your only one, or default, when not given");
}

absl::Status UploadCommand::CheckFlags() {
  if (name_.empty()) return absl::OkStatus();
  const absl::Status named = CheckUploadName(name_);
  if (named.ok()) return named;
  return absl::InvalidArgumentError(
      absl::StrCat("flag --name: ", named.message()));
}

ExitCode UploadCommand::Run(const std::vector<std::string>& arguments,
                            Session* session) {
  const std::string& path = arguments[0];
  const std::string doing = "upload " + path;
  const auto fail = [&](grpc::StatusCode code, const std::string& why) {
    return session->Fail(doing, grpc::Status(code, why));
  };
  absl::StatusOr<LocalFiles> files = FindLocalFiles(path);
  if (!files.ok()) {
    return fail(static_cast<grpc::StatusCode>(files.status().code()),
                std::string(files.status().message()));
  }
  struct stat info;
  const bool is_folder =
      stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (model_ && !is_folder) {
    return fail(grpc::StatusCode::INVALID_ARGUMENT,
                "a model is a directory; flag --model is for one");
  }
  UploadWish wish{
      .kind = model_ ? v1::UPLOAD_KIND_MODEL : v1::UPLOAD_KIND_DATASET,
      .name = name_.empty() ? NameOfPath(path, is_folder) : name_,
      .project = project_};
  if (wish.name.empty()) {
    return fail(grpc::StatusCode::INVALID_ARGUMENT,
                "flag --name is missing: the path gives no name");
  }
  if (!files->left_out.empty()) {
    session->err() << "Left out, for the '.' that their names begin with: "
                   << VisibleLine(absl::StrJoin(files->left_out, ", ")) << "\n";
  }
  v1::Upload upload;
  grpc::Status status = HashFiles(&*files, session);
  if (status.ok()) status = Upload(wish, *files, session, &upload);
  if (!status.ok()) return session->Fail(doing, status);
  if (session->format() == OutputFormat::kJson) {
    session->out() << JsonText(MessageJson(upload), 2) << "\n";
  } else {
    session->out() << VisibleLine(UploadReferenceText(upload)) << "\n";
  }
  return ExitCode::kOk;
}

std::string Verb(const UploadQuestion& question, const std::string& verb) {
  return absl::StrCat(
      question.kind == v1::UPLOAD_KIND_MODEL ? "model " : "dataset ", verb,
      question.name.empty() ? "" : " ", question.name);
}

std::string NameAlone(const std::string& name) {
  return name.substr(0, name.find('@'));
}

// Finds those that the name means, all of one project.
grpc::Status FindNamed(const UploadQuestion& question, Session* session,
                       std::vector<v1::Upload>* found) {
  v1::ListUploadsResponse response;
  const grpc::Status status = FindUploads(question, session, &response);
  if (!status.ok()) return status;
  std::set<std::string> projects;
  for (const v1::Upload& upload : response.uploads()) {
    const std::string version =
        absl::StrCat(upload.name(), "@", upload.version());
    if (question.name != upload.name() && question.name != version) continue;
    found->push_back(upload);
    projects.insert(upload.project());
  }
  if (found->empty()) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND,
                        absl::StrCat("there is no upload ", question.name));
  }
  if (projects.size() == 1) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                      absl::StrCat("projects ", absl::StrJoin(projects, ", "),
                                   " have it: say which with --project"));
}

}  // namespace

std::unique_ptr<Command> MakeUploadCommand() {
  return std::make_unique<UploadCommand>();
}

std::string WithoutKind(const std::string& name, v1::UploadKind kind) {
  const std::string prefix =
      kind == v1::UPLOAD_KIND_MODEL ? "model:" : "dataset:";
  return std::string(absl::StripPrefix(name, prefix));
}

grpc::Status FindUploads(const UploadQuestion& question, Session* session,
                         v1::ListUploadsResponse* response) {
  v1::ListUploadsRequest request;
  request.set_kind(question.kind);
  request.set_project(question.project);
  request.set_name(NameAlone(question.name));
  UnaryContext context(session->interrupt());
  return session->uploads().ListUploads(context.get(), request, response);
}

ExitCode ListUploads(const UploadQuestion& question, Session* session) {
  v1::ListUploadsResponse response;
  const grpc::Status status = FindUploads(question, session, &response);
  if (!status.ok()) return session->Fail(Verb(question, "list"), status);
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << UploadTable(
          {response.uploads().begin(), response.uploads().end()});
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(response), 2) << "\n";
      break;
    case OutputFormat::kName:
      for (const v1::Upload& upload : response.uploads()) {
        session->out() << VisibleLine(UploadVersionText(upload)) << "\n";
      }
      break;
  }
  return ExitCode::kOk;
}

ExitCode ShowUpload(const UploadQuestion& question, Session* session) {
  const std::string doing = Verb(question, "show");
  std::vector<v1::Upload> found;
  grpc::Status status = FindNamed(question, session, &found);
  v1::Upload upload;
  if (status.ok()) {
    v1::GetUploadRequest request;
    request.set_id(found.back().id());
    UnaryContext context(session->interrupt());
    status = session->uploads().GetUpload(context.get(), request, &upload);
  }
  if (!status.ok()) return session->Fail(doing, status);
  switch (session->format()) {
    case OutputFormat::kTable:
      session->out() << UploadText(upload);
      break;
    case OutputFormat::kJson:
      session->out() << JsonText(MessageJson(upload), 2) << "\n";
      break;
    case OutputFormat::kName:
      session->out() << VisibleLine(UploadVersionText(upload)) << "\n";
      break;
  }
  return ExitCode::kOk;
}

ExitCode DeleteUploads(const UploadQuestion& question, Session* session) {
  const std::string doing = Verb(question, "delete");
  std::vector<v1::Upload> found;
  grpc::Status status = FindNamed(question, session, &found);
  for (const v1::Upload& upload : found) {
    if (!status.ok()) break;
    v1::DeleteUploadRequest request;
    request.set_id(upload.id());
    v1::DeleteUploadResponse response;
    UnaryContext context(session->interrupt());
    status = session->uploads().DeleteUpload(context.get(), request, &response);
    if (!status.ok()) break;
    if (session->format() == OutputFormat::kJson) {
      session->out() << JsonText(MessageJson(upload), 2) << "\n";
    } else {
      session->out() << VisibleLine(UploadVersionText(upload)) << "\n";
    }
  }
  return status.ok() ? ExitCode::kOk : session->Fail(doing, status);
}

}  // namespace roundhouse::client
