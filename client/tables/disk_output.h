// What lies on the server's disk, as text.  Pure; thread-safe.
#ifndef ROUNDHOUSE_CLIENT_TABLES_DISK_OUTPUT_H_
#define ROUNDHOUSE_CLIENT_TABLES_DISK_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/roundhouse/v1/checkpoint.pb.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"
#include "proto/roundhouse/v1/system.pb.h"

namespace roundhouse::client {

// How `du` puts parts together.
enum class DiskView { kKind, kUser, kProject, kJob };

// A table with its sum; the largest first, but kKind in its own order.
std::string DiskUsageTable(const std::vector<v1::DiskPart>& parts,
                           DiskView view);
// "12.5 GiB of 100.0 GiB are free.\n"
std::string DiskFreeText(const v1::GetDiskUsageResponse& answer);

// What goes with a job, what stays, and the sum.
std::string DeletionText(const std::string& job,
                         const v1::DeleteFineTuningJobResponse& answer);
int64_t BytesOf(const v1::DeleteFineTuningJobResponse& answer);

// Why files are still there, after `left` of an answer; "": they are not.
std::string LeftText(const std::string& left);

// Checkpoints with their sum.
std::string CheckpointTable(const std::vector<v1::Checkpoint>& checkpoints);
int64_t BytesOf(const std::vector<v1::Checkpoint>& checkpoints);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_TABLES_DISK_OUTPUT_H_
