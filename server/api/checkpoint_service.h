// roundhouse.v1.CheckpointService.
#ifndef ROUNDHOUSE_SERVER_API_CHECKPOINT_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_CHECKPOINT_SERVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/checkpoint.grpc.pb.h"
#include "server/api/disk/disk_engine.h"
#include "server/api/job_engine.h"
#include "server/calls/stream_pump.h"
#include "server/weights/output_files.h"

namespace roundhouse {

// Between two messages of one export.
inline constexpr absl::Duration kExportProgressInterval =
    absl::Milliseconds(200);

// kInvalidArgument with the field.  Pure.
absl::StatusOr<ExportRequest> FromProto(
    const v1::ExportCheckpointRequest& request);

// One export's progress, and its end.  Dropping the stream cancels the export.
class ExportStream final : public PumpedWriter<v1::ExportCheckpointResponse> {
 public:
  ExportStream(StreamPump* pump, grpc::CallbackServerContext* context,
               std::shared_ptr<ExportTask> task);
  ~ExportStream() override;

 protected:
  absl::StatusOr<NextMessage> Next(absl::Time now,
                                   v1::ExportCheckpointResponse* out) override;

 private:
  const std::shared_ptr<ExportTask> task_;
  ExportProgress sent_;
  absl::Time next_ = absl::InfinitePast();
  bool ended_ = false;
};

// Thread-safe.  Everything given must outlive the gRPC server.
class CheckpointService final : public v1::CheckpointService::CallbackService {
 public:
  CheckpointService(JobEngine* engine, DiskEngine* disk,
                    const std::string& state_dir, const CallDoor& door)
      : engine_(engine), disk_(disk), door_(door), files_(state_dir) {}

  grpc::ServerWriteReactor<v1::ExportCheckpointResponse>* ExportCheckpoint(
      grpc::CallbackServerContext* context,
      const v1::ExportCheckpointRequest* request) override;
  grpc::ServerUnaryReactor* ListOutputFiles(
      grpc::CallbackServerContext* context,
      const v1::ListOutputFilesRequest* request,
      v1::ListOutputFilesResponse* response) override;
  grpc::ServerUnaryReactor* ReadOutputFile(
      grpc::CallbackServerContext* context,
      const v1::ReadOutputFileRequest* request,
      v1::ReadOutputFileResponse* response) override;
  grpc::ServerUnaryReactor* HashOutputFile(
      grpc::CallbackServerContext* context,
      const v1::HashOutputFileRequest* request,
      v1::HashOutputFileResponse* response) override;
  grpc::ServerUnaryReactor* ListOldCheckpoints(
      grpc::CallbackServerContext* context,
      const v1::ListOldCheckpointsRequest* request,
      v1::ListOldCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteCheckpoints(
      grpc::CallbackServerContext* context,
      const v1::DeleteCheckpointsRequest* request,
      v1::DeleteCheckpointsResponse* response) override;

 private:
  JobEngine* const engine_;
  DiskEngine* const disk_;
  const CallDoor door_;
  OutputFiles files_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_CHECKPOINT_SERVICE_H_
