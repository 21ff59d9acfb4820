// roundhouse.v1.UploadService.
#ifndef ROUNDHOUSE_SERVER_API_UPLOAD_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_UPLOAD_SERVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/upload.grpc.pb.h"
#include "server/calls/unary_call.h"
#include "server/limits/limit_check.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

// kInvalidArgument with the field.  Pure; owner and project are the caller's.
absl::StatusOr<NewUpload> FromProto(const v1::CreateUploadRequest& request);
// Without its files.
v1::Upload ToProto(const UploadRecord& record);
// With them, and how much of each is there.
v1::Upload ToProto(const UploadProgress& progress);

// kNotFound where the caller has no role in its project; kPermissionDenied
// where it is neither his nor he an admin.  Pure.
absl::Status CheckMaySee(const Caller& caller, const UploadRecord& record);
absl::Status CheckMayChange(const Caller& caller, const UploadRecord& record);

// The rows of the table of limits, of one more that counts `bytes`.  Its packed
// files have the size that they came with, which is the least once unpacked.
absl::Status CheckLimits(const LimitCheck& limits, const Caller& caller,
                         const NewUpload& upload, uint64_t bytes);

// An upload is shown to whoever has a role in its project, and is its owner's
// to send and to delete; to anybody else it is not there.
//
// Thread-safe.  Everything given must outlive the gRPC server.
class UploadService final : public v1::UploadService::CallbackService {
 public:
  UploadService(Uploads* uploads, const CallDoor& door)
      : uploads_(uploads), door_(door) {}

  grpc::ServerUnaryReactor* CreateUpload(grpc::CallbackServerContext* context,
                                         const v1::CreateUploadRequest* request,
                                         v1::Upload* response) override;
  grpc::ServerUnaryReactor* UploadChunk(
      grpc::CallbackServerContext* context,
      const v1::UploadChunkRequest* request,
      v1::UploadChunkResponse* response) override;
  grpc::ServerUnaryReactor* FinishUpload(grpc::CallbackServerContext* context,
                                         const v1::FinishUploadRequest* request,
                                         v1::Upload* response) override;
  grpc::ServerUnaryReactor* GetUpload(grpc::CallbackServerContext* context,
                                      const v1::GetUploadRequest* request,
                                      v1::Upload* response) override;
  grpc::ServerUnaryReactor* ListUploads(
      grpc::CallbackServerContext* context,
      const v1::ListUploadsRequest* request,
      v1::ListUploadsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteUpload(
      grpc::CallbackServerContext* context,
      const v1::DeleteUploadRequest* request,
      v1::DeleteUploadResponse* response) override;

 private:
  absl::Status Create(const Entered& entered,
                      const v1::CreateUploadRequest& request,
                      v1::Upload* response);
  absl::Status Chunk(const Entered& entered,
                     const v1::UploadChunkRequest& request,
                     v1::UploadChunkResponse* response);
  // The same of an upload by its id; kNotFound where there is none.
  absl::Status CheckSeen(const Caller& caller, const std::string& id);
  absl::Status CheckOwn(const Caller& caller, const std::string& id);

  Uploads* const uploads_;
  const CallDoor door_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_UPLOAD_SERVICE_H_
