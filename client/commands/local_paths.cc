#include "client/commands/local_paths.h"

#include <filesystem>
#include <ostream>
#include <system_error>

#include "absl/strings/ascii.h"
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

// Whether the path stands in the job file as it is, whole and as no key: what
// a server says is no reason to read another file of this machine.
bool StandsIn(const std::string& text, const std::string& path) {
  if (path.empty()) return false;
  const auto ends_a_word = [&](size_t at) {
    return at >= text.size() || absl::ascii_isspace(text[at]) ||
           absl::StrContains("\"',[]{}", text[at]);
  };
  for (size_t at = text.find(path); at != std::string::npos;
       at = text.find(path, at + 1)) {
    const size_t end = at + path.size();
    const bool quoted =
        end < text.size() && absl::StrContains("\"'", text[end]);
    const bool key = quoted && end + 1 < text.size() && text[end + 1] == ':';
    if ((at == 0 || ends_a_word(at - 1)) && ends_a_word(end) && !key) {
      return true;
    }
  }
  return false;
}

grpc::Status NotNamed(const std::string& path) {
  return grpc::Status(
      grpc::StatusCode::FAILED_PRECONDITION,
      absl::StrCat("the server asks for ", path,
                   ", which is here but does not stand so in the job file; it "
                   "is not sent.  Write the path as it is, without escapes"));
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
  session->err() << VisibleLine(path.field()) << ": sending "
                 << VisibleLine(path.path()) << " (" << files->files.size()
                 << (files->files.size() == 1 ? " file, " : " files, ")
                 << files->bytes() << " bytes) to the server\n"
                 << std::flush;
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
  if (!status.ok()) return status;
  for (const v1::JobFilePath& path : here.paths()) {
    if (!StandsIn(request->text(), path.path())) return NotNamed(path.path());
  }
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
