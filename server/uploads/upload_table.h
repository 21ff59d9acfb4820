// The table of uploads in the job store.
//
// Each function runs inside JobStore::WriteWith or ReadWith. Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_TABLE_H_
#define ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_TABLE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/store_db.h"
#include "server/uploads/upload_record.h"

namespace roundhouse {

// kDataLoss for a row that differs from its checksum, or says what cannot be.
absl::StatusOr<std::vector<UploadRecord>> ReadUploads(Database* db);
// By id.  Accounts give uploads of a uid to the user whose it becomes.
absl::StatusOr<std::map<std::string, std::string>> ReadUploadOwners(
    Database* db);
// A new row, or all of one that is there but its owner.
absl::Status PutUpload(Database* db, const UploadRecord& record);
absl::Status DropUpload(Database* db, const std::string& id);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_TABLE_H_
