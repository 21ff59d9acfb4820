// The tables of the job store and how an older file becomes a newer one.
//
// The schema's version is SQLite's user_version.  Migrations go forward only,
// each in a transaction of its own.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_SCHEMA_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_SCHEMA_H_

#include "absl/status/status.h"
#include "server/store/store_db.h"

namespace roundhouse {

inline constexpr int kStoreSchemaVersion = 2;

// quick_check, then the missing migrations.  kDataLoss: corrupt.
// kFailedPrecondition: the file was written by a newer Roundhouse.
absl::Status PrepareSchema(Database* db);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_SCHEMA_H_
