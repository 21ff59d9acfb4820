#include "server/api/checkpoint_service.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "server/api/disk/disk_convert.h"
#include "server/calls/begin_stream.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr size_t kMaxPathBytes = 4096;

absl::Status CheckPath(const char* field, const std::string& value) {
  if (value.empty()) {
    return FieldError(FieldReason::kMissingField, field, "is missing");
  }
  if (value.size() <= kMaxPathBytes && value.find('\0') == std::string::npos) {
    return absl::OkStatus();
  }
  return FieldError(
      FieldReason::kInvalidValue, field,
      absl::StrCat("is no path: ", value.size(), " bytes, at most ",
                   kMaxPathBytes, ", none of them zero"));
}

absl::StatusOr<ExportKind> KindFromProto(v1::ExportKind kind) {
  switch (kind) {
    case v1::EXPORT_KIND_UNSPECIFIED:
      return ExportKind::kAsIs;
    case v1::EXPORT_KIND_ADAPTER:
      return ExportKind::kAdapter;
    case v1::EXPORT_KIND_MERGED:
      return ExportKind::kMerged;
    case v1::EXPORT_KIND_FULL:
      return ExportKind::kFull;
    default:
      return FieldError(
          FieldReason::kInvalidValue, "kind",
          absl::StrCat("there is no kind ", static_cast<int>(kind)));
  }
}

v1::ExportKind ToProto(ExportKind kind) {
  switch (kind) {
    case ExportKind::kAsIs:
      break;
    case ExportKind::kAdapter:
      return v1::EXPORT_KIND_ADAPTER;
    case ExportKind::kMerged:
      return v1::EXPORT_KIND_MERGED;
    case ExportKind::kFull:
      return v1::EXPORT_KIND_FULL;
  }
  return v1::EXPORT_KIND_UNSPECIFIED;
}

absl::StatusOr<std::optional<DType>> DTypeFromText(const std::string& text) {
  if (text.empty()) return std::optional<DType>();
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (text == DTypeName(dtype)) return std::optional<DType>(dtype);
  }
  return FieldError(
      FieldReason::kInvalidValue, "dtype",
      absl::StrCat("expected fp32, bf16 or fp16, got \"", text, "\""));
}

// What a request about one file names.
template <typename Request>
OutputFile FileOf(const Request& request) {
  return {.name = request.name(), .state = request.state()};
}

}  // namespace

absl::StatusOr<ExportRequest> FromProto(
    const v1::ExportCheckpointRequest& request) {
  RETURN_IF_ERROR(CheckPath("source", request.source()));
  RETURN_IF_ERROR(CheckPath("output", request.output()));
  ExportRequest out;
  out.source = request.source();
  out.output = request.output();
  ASSIGN_OR_RETURN(out.kind, KindFromProto(request.kind()));
  ASSIGN_OR_RETURN(out.dtype, DTypeFromText(request.dtype()));
  return out;
}

ExportStream::ExportStream(StreamPump* pump,
                           grpc::CallbackServerContext* context,
                           std::shared_ptr<ExportTask> task)
    : PumpedWriter(pump, context), task_(std::move(task)) {}

ExportStream::~ExportStream() { task_->Cancel(); }

absl::StatusOr<NextMessage> ExportStream::Next(
    absl::Time now, v1::ExportCheckpointResponse* out) {
  if (ended_) return NextMessage::kEnd;
  // Before the progress, which is final then.
  const auto result = task_->result();
  if (result.has_value()) RETURN_IF_ERROR(result->status());
  const ExportProgress progress = task_->progress();
  if (!result.has_value() && (progress == sent_ || now < next_)) {
    return NextMessage::kNothing;
  }
  sent_ = progress;
  next_ = now + kExportProgressInterval;
  out->set_kind(ToProto(progress.kind));
  out->set_done_bytes(static_cast<int64_t>(progress.done_bytes));
  out->set_total_bytes(static_cast<int64_t>(progress.total_bytes));
  if (result.has_value()) {
    out->set_path(**result);
    ended_ = true;
  }
  return NextMessage::kSend;
}

grpc::ServerWriteReactor<v1::ExportCheckpointResponse>*
CheckpointService::ExportCheckpoint(
    grpc::CallbackServerContext* context,
    const v1::ExportCheckpointRequest* request) {
  using Response = v1::ExportCheckpointResponse;
  return BeginStream<Response>(
      door_, context, *request, StreamKind::kExport,
      [&](const Entered& entered) -> MadeStream<Response> {
        ASSIGN_OR_RETURN(ExportRequest wanted, FromProto(*request));
        wanted.caller = entered.caller;
        return std::make_shared<ExportStream>(door_.pump, context,
                                              engine_->Export(wanted));
      });
}

grpc::ServerUnaryReactor* CheckpointService::ListOutputFiles(
    grpc::CallbackServerContext* context,
    const v1::ListOutputFilesRequest* request,
    v1::ListOutputFilesResponse* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    RETURN_IF_ERROR(CheckPath("source", request->source()));
                    ASSIGN_OR_RETURN(
                        const std::string directory,
                        engine_->FindOutput(request->source(), entered.caller));
                    ASSIGN_OR_RETURN(const std::vector<OutputFile> files,
                                     files_.List(directory));
                    for (const OutputFile& file : files) {
                      v1::OutputFile* const added = response->add_files();
                      added->set_name(file.name);
                      added->set_size_bytes(static_cast<int64_t>(file.bytes));
                      added->set_state(file.state);
                    }
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* CheckpointService::ReadOutputFile(
    grpc::CallbackServerContext* context,
    const v1::ReadOutputFileRequest* request,
    v1::ReadOutputFileResponse* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    RETURN_IF_ERROR(CheckPath("source", request->source()));
                    if (request->offset() < 0) {
                      return FieldError(FieldReason::kInvalidValue, "offset",
                                        "is negative");
                    }
                    ASSIGN_OR_RETURN(
                        const std::string directory,
                        engine_->FindOutput(request->source(), entered.caller));
                    ASSIGN_OR_RETURN(
                        *response->mutable_data(),
                        files_.Read(directory, FileOf(*request),
                                    static_cast<uint64_t>(request->offset())));
                    response->set_crc32c(Crc32c(response->data()));
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* CheckpointService::HashOutputFile(
    grpc::CallbackServerContext* context,
    const v1::HashOutputFileRequest* request,
    v1::HashOutputFileResponse* response) {
  return RunUnary(
      context, door_, request,
      [=, this](const Entered& entered) -> absl::Status {
        RETURN_IF_ERROR(CheckPath("source", request->source()));
        ASSIGN_OR_RETURN(
            const std::string directory,
            engine_->FindOutput(request->source(), entered.caller));
        ASSIGN_OR_RETURN(
            const FileHashProgress progress,
            files_.Hash(directory, FileOf(*request), entered.caller.owner()));
        response->set_hashed_bytes(static_cast<int64_t>(progress.hashed_bytes));
        response->set_sha256(progress.sha256);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* CheckpointService::ListOldCheckpoints(
    grpc::CallbackServerContext* context,
    const v1::ListOldCheckpointsRequest* request,
    v1::ListOldCheckpointsResponse* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    ASSIGN_OR_RETURN(
                        const OldCheckpointsQuery query,
                        FromProto(*request, entered.caller, WallTime()));
                    ASSIGN_OR_RETURN(const OldCheckpoints page,
                                     disk_->ListOldCheckpoints(query));
                    *response = ToProto(page);
                    return absl::OkStatus();
                  });
}

grpc::ServerUnaryReactor* CheckpointService::DeleteCheckpoints(
    grpc::CallbackServerContext* context,
    const v1::DeleteCheckpointsRequest* request,
    v1::DeleteCheckpointsResponse* response) {
  return RunUnary(context, door_, request,
                  [=, this](const Entered& entered) -> absl::Status {
                    ASSIGN_OR_RETURN(const DeleteCheckpointsRequest wanted,
                                     FromProto(*request, entered));
                    ASSIGN_OR_RETURN(const DeletedCheckpoints deleted,
                                     disk_->DeleteCheckpoints(wanted));
                    *response = ToProto(deleted);
                    return absl::OkStatus();
                  });
}

}  // namespace roundhouse
