#include "server/api/upload_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "server/api/convert.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

static_assert(static_cast<int>(UploadKind::kDataset) ==
                  v1::UPLOAD_KIND_DATASET &&
              static_cast<int>(UploadKind::kModel) == v1::UPLOAD_KIND_MODEL);

absl::StatusOr<UploadKind> KindFromProto(v1::UploadKind kind) {
  switch (kind) {
    case v1::UPLOAD_KIND_DATASET:
      return UploadKind::kDataset;
    case v1::UPLOAD_KIND_MODEL:
      return UploadKind::kModel;
    case v1::UPLOAD_KIND_UNSPECIFIED:
      return FieldError(FieldReason::kMissingField, "kind", "is missing");
    default:
      return FieldError(
          FieldReason::kInvalidValue, "kind",
          absl::StrCat("there is no kind ", static_cast<int>(kind)));
  }
}

absl::Status NotThere(const std::string& id) {
  return FieldError(absl::StatusCode::kNotFound, FieldReason::kNotFound, "id",
                    absl::StrCat("there is no upload ", id));
}

}  // namespace

absl::StatusOr<NewUpload> FromProto(const v1::CreateUploadRequest& request) {
  NewUpload upload{.name = request.name()};
  ASSIGN_OR_RETURN(upload.kind, KindFromProto(request.kind()));
  if (static_cast<size_t>(request.files_size()) > kMaxUploadFiles) {
    return FieldError(FieldReason::kInvalidValue, "files",
                      absl::StrCat(request.files_size(), " files, ",
                                   kMaxUploadFiles, " are the most"));
  }
  for (const v1::UploadedFile& file : request.files()) {
    if (file.size_bytes() < 0) {
      return FieldError(FieldReason::kInvalidValue, "files",
                        "size_bytes is negative");
    }
    upload.files.push_back({.name = file.name(),
                            .bytes = static_cast<uint64_t>(file.size_bytes()),
                            .sha256 = file.sha256()});
  }
  return upload;
}

v1::Upload ToProto(const UploadRecord& record) {
  v1::Upload out;
  out.set_id(record.id);
  out.set_kind(static_cast<v1::UploadKind>(record.kind));
  out.set_project(record.project);
  out.set_name(record.name);
  out.set_version(record.version);
  const bool finished = record.state == UploadState::kFinished;
  out.set_state(finished ? v1::UPLOAD_STATE_FINISHED
                         : v1::UPLOAD_STATE_ARRIVING);
  out.set_owner(record.owner);
  *out.mutable_create_time() = ToProto(record.create_time);
  if (finished) *out.mutable_finish_time() = ToProto(record.finish_time);
  out.set_file_count(static_cast<int64_t>(record.files->size()));
  out.set_size_bytes(static_cast<int64_t>(record.total_bytes()));
  return out;
}

v1::Upload ToProto(const UploadProgress& progress) {
  v1::Upload out = ToProto(progress.record);
  for (const UploadedFile& file : *progress.record.files) {
    v1::UploadedFile* const added = out.add_files();
    added->set_name(file.name);
    added->set_size_bytes(static_cast<int64_t>(file.bytes));
    added->set_sha256(file.sha256);
  }
  for (const uint64_t received : progress.received) {
    out.add_received_bytes(static_cast<int64_t>(received));
  }
  out.set_verified_bytes(static_cast<int64_t>(progress.verified_bytes));
  return out;
}

absl::Status CheckMaySee(const Caller& caller, const UploadRecord& record) {
  if (caller.RoleIn(record.project) >= Role::kViewer) return absl::OkStatus();
  return NotThere(record.id);
}

absl::Status CheckMayChange(const Caller& caller, const UploadRecord& record) {
  RETURN_IF_ERROR(CheckMaySee(caller, record));
  const Role role = caller.RoleIn(record.project);
  const bool own = record.owner == caller.owner() && role >= Role::kMember;
  if (own || role >= Role::kAdmin) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(record.reference(), " is ", record.owner,
                   "'s: its owner and admins may do this"));
}

absl::Status CheckLimits(const LimitCheck& limits, const Caller& caller,
                         const NewUpload& upload, uint64_t bytes) {
  uint64_t sent = 0;
  for (const UploadedFile& file : upload.files) sent += file.bytes;
  const auto unpacked = limits.OfCaller(caller, Limit::kUnpackedBytes);
  if (unpacked.has_value() && sent > static_cast<uint64_t>(unpacked->value)) {
    return LimitCheck::Reached(*unpacked, Limit::kUnpackedBytes, 0,
                               static_cast<int64_t>(sent));
  }
  return limits.CheckRoom(caller, upload.project, static_cast<int64_t>(bytes));
}

absl::Status UploadService::CheckSeen(const Caller& caller,
                                      const std::string& id) {
  RETURN_IF_ERROR(uploads_->UseAccounts(door_.gate->generation()));
  ASSIGN_OR_RETURN(const UploadRecord record, uploads_->Record(id));
  return CheckMaySee(caller, record);
}

absl::Status UploadService::CheckOwn(const Caller& caller,
                                     const std::string& id) {
  RETURN_IF_ERROR(uploads_->UseAccounts(door_.gate->generation()));
  ASSIGN_OR_RETURN(const UploadRecord record, uploads_->Record(id));
  return CheckMayChange(caller, record);
}

absl::Status UploadService::Create(const Entered& entered,
                                   const v1::CreateUploadRequest& request,
                                   v1::Upload* response) {
  RETURN_IF_ERROR(uploads_->UseAccounts(door_.gate->generation()));
  ASSIGN_OR_RETURN(NewUpload upload, FromProto(request));
  upload.project = entered.project;
  upload.owner = entered.caller.owner();
  ASSIGN_OR_RETURN(const UploadProgress progress,
                   uploads_->Create(
                       upload,
                       [&entered](const std::string& project) {
                         return entered.caller.RoleIn(project) >= Role::kMember;
                       },
                       [&](uint64_t bytes) {
                         return CheckLimits(*door_.limits, entered.caller,
                                            upload, bytes);
                       }));
  *response = ToProto(progress);
  return absl::OkStatus();
}

absl::Status UploadService::Chunk(const Entered& entered,
                                  const v1::UploadChunkRequest& request,
                                  v1::UploadChunkResponse* response) {
  RETURN_IF_ERROR(CheckOwn(entered.caller, request.id()));
  if (request.file() < 0 || request.offset() < 0) {
    return FieldError(FieldReason::kInvalidValue,
                      request.file() < 0 ? "file" : "offset", "is negative");
  }
  if (Crc32c(request.data()) != request.crc32c()) {
    return absl::UnavailableError(
        "data: its CRC-32C is another; it was damaged on its way, send it "
        "again");
  }
  ASSIGN_OR_RETURN(
      const uint64_t received,
      uploads_->PutChunk(request.id(), static_cast<size_t>(request.file()),
                         static_cast<uint64_t>(request.offset()),
                         request.data()));
  response->set_received_bytes(static_cast<int64_t>(received));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* UploadService::CreateUpload(
    grpc::CallbackServerContext* context,
    const v1::CreateUploadRequest* request, v1::Upload* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return Create(entered, *request, response);
  });
}

grpc::ServerUnaryReactor* UploadService::UploadChunk(
    grpc::CallbackServerContext* context, const v1::UploadChunkRequest* request,
    v1::UploadChunkResponse* response) {
  return RunUnary(context, door_, request, [=, this](const Entered& entered) {
    return Chunk(entered, *request, response);
  });
}

grpc::ServerUnaryReactor* UploadService::FinishUpload(
    grpc::CallbackServerContext* context,
    const v1::FinishUploadRequest* request, v1::Upload* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    RETURN_IF_ERROR(CheckOwn(entered.caller, request->id()));
                    ASSIGN_OR_RETURN(const UploadProgress progress,
                                     uploads_->Finish(request->id()));
                    *response = ToProto(progress);
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* UploadService::GetUpload(
    grpc::CallbackServerContext* context, const v1::GetUploadRequest* request,
    v1::Upload* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    RETURN_IF_ERROR(CheckSeen(entered.caller, request->id()));
                    ASSIGN_OR_RETURN(const UploadProgress progress,
                                     uploads_->Get(request->id()));
                    *response = ToProto(progress);
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* UploadService::ListUploads(
    grpc::CallbackServerContext* context, const v1::ListUploadsRequest* request,
    v1::ListUploadsResponse* response) {
  return RunUnary(
      context, door_, request,
      [=, this](const Entered& entered) -> absl::Status {
        RETURN_IF_ERROR(uploads_->UseAccounts(door_.gate->generation()));
        for (const UploadRecord& record : uploads_->List()) {
          const bool wanted =
              (request->kind() == v1::UPLOAD_KIND_UNSPECIFIED ||
               request->kind() == static_cast<v1::UploadKind>(record.kind)) &&
              (request->project().empty() ||
               request->project() == record.project) &&
              (request->name().empty() || request->name() == record.name);
          if (!wanted) continue;
          if (entered.caller.RoleIn(record.project) < Role::kViewer) continue;
          *response->add_uploads() = ToProto(record);
        }
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* UploadService::DeleteUpload(
    grpc::CallbackServerContext* context,
    const v1::DeleteUploadRequest* request, v1::DeleteUploadResponse*) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    RETURN_IF_ERROR(CheckOwn(entered.caller, request->id()));
                    return uploads_->Remove(request->id());
                  });
}

}  // namespace roundhouse
