// Between the wire and what the API needs done about the disk (disk_engine.h).
//
// Pure functions; thread-safe.  Errors are kInvalidArgument with the field.
#ifndef ROUNDHOUSE_SERVER_API_DISK_DISK_CONVERT_H_
#define ROUNDHOUSE_SERVER_API_DISK_DISK_CONVERT_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/roundhouse/v1/checkpoint.pb.h"
#include "proto/roundhouse/v1/disk.pb.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "proto/roundhouse/v1/system.pb.h"
#include "server/access/gate.h"
#include "server/api/disk/disk_engine.h"

namespace roundhouse {

// kPermissionDenied: everybody's, of somebody who is no admin.
absl::StatusOr<OldCheckpointsQuery> FromProto(
    const v1::ListOldCheckpointsRequest& request, const Caller& caller,
    absl::Time now);
absl::StatusOr<DeleteCheckpointsRequest> FromProto(
    const v1::DeleteCheckpointsRequest& request, const Entered& entered);
absl::StatusOr<DiskUsageQuery> FromProto(const v1::GetDiskUsageRequest& request,
                                         const Caller& caller);
DeleteJobRequest FromProto(const v1::DeleteFineTuningJobRequest& request,
                           const Entered& entered);

v1::DeleteFineTuningJobResponse ToProto(const DeletedJob& deleted);
v1::ListOldCheckpointsResponse ToProto(const OldCheckpoints& page);
v1::DeleteCheckpointsResponse ToProto(const DeletedCheckpoints& deleted);
v1::GetDiskUsageResponse ToProto(const DiskUsagePage& page);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_DISK_DISK_CONVERT_H_
