#include "client/commands/local_paths.h"

#include <filesystem>
#include <ostream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/upload_names.h"
#include "base/visible_text.h"
#include "client/tables/upload_output.h"
#include "client/transfer/upload.h"

namespace roundhouse::client {
namespace {

bool IsHere(const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  return type == std::filesystem::file_type::regular ||
         type == std::filesystem::file_type::directory;
}

// Finds those of the job file that are files or folders here.
grpc::Status FindLocalPaths(const v1::CreateFineTuningJobRequest& request,
                            Session* session,
                            v1::ListJobFilePathsResponse* here) {
  v1::ListJobFilePathsRequest question;
  question.set_text(request.text());
  question.set_file_name(request.file_name());
  v1::ListJobFilePathsResponse all;
  UnaryContext context(session->interrupt());
  const grpc::Status status =
      session->jobs().ListJobFilePaths(context.get(), question, &all);
  for (const v1::JobFilePath& path : all.paths()) {
    if (IsHere(path.path())) *here->add_paths() = path;
  }
  return status;
}

grpc::Status UploadOne(const v1::JobFilePath& path, const std::string& project,
                       Session* session, std::string* name) {
  absl::StatusOr<LocalFiles> files = FindLocalFiles(path.path());
  if (!files.ok()) {
    return grpc::Status(static_cast<grpc::StatusCode>(files.status().code()),
                        absl::StrCat(path.field(), ": ",
                                     std::string(files.status().message())));
  }
  grpc::Status status = HashFiles(&*files, session);
  if (!status.ok()) return status;
  const bool is_model = path.field() == "adapter_name_or_path";
  v1::Upload upload;
  status = Upload(
      {.kind = is_model ? v1::UPLOAD_KIND_MODEL : v1::UPLOAD_KIND_DATASET,
       .name = NameOfContents(path.path(), *files),
       .project = project},
      *files, session, &upload);
  if (!status.ok()) return status;
  *name = UploadVersionText(upload);
  session->err() << VisibleLine(path.path()) << " is "
                 << VisibleLine(UploadReferenceText(upload))
                 << " on the server\n"
                 << std::flush;
  return status;
}

}  // namespace

grpc::Status UploadLocalPaths(v1::CreateFineTuningJobRequest* request,
                              Session* session) {
  v1::ListJobFilePathsResponse here;
  grpc::Status status = FindLocalPaths(*request, session, &here);
  for (const v1::JobFilePath& path : here.paths()) {
    if (!status.ok()) return status;
    if (request->uploaded().contains(path.path())) continue;
    std::string name;
    status = UploadOne(path, request->project(), session, &name);
    if (status.ok()) (*request->mutable_uploaded())[path.path()] = name;
  }
  return status;
}

std::string LocalPathHint(const v1::CreateFineTuningJobRequest& request,
                          const grpc::Status& refusal, Session* session) {
  if (refusal.error_code() != grpc::StatusCode::INVALID_ARGUMENT) return "";
  v1::ListJobFilePathsResponse here;
  if (!FindLocalPaths(request, session, &here).ok()) return "";
  for (const v1::JobFilePath& path : here.paths()) {
    if (!absl::StrContains(refusal.error_message(), path.path()) &&
        !absl::StrContains(refusal.error_details(), path.path())) {
      continue;
    }
    return absl::StrCat(VisibleLine(path.path()),
                        " is here, on this machine; submit --upload sends it "
                        "to the server.\n");
  }
  return "";
}

}  // namespace roundhouse::client
