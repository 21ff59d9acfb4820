// Which jobs use an upload, and whether what a job names is there: asked in the
// transactions that remove the one and add the other, so that neither misses
// the other.
//
// A job says which files it uses by their names, which have the upload's id.
// Thread rule and errors are the database's.
#ifndef ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_USE_H_
#define ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_USE_H_

#include <string>

#include "absl/status/status.h"
#include "server/store/store.h"
#include "server/uploads/upload_record.h"

namespace roundhouse {

// kFailedPrecondition naming jobs that have not ended and use it.
absl::Status CheckUnused(Database* db, const UploadRecord& record);

// kNotFound where `spec`, as JSON, names something in `versions`, a folder of
// finished uploads by their ids, that is gone or going.
absl::Status CheckNamedUploads(Database* db, const std::string& versions,
                               const std::string& spec);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_UPLOADS_UPLOAD_USE_H_
