// The tables of the job store and how an older file becomes a newer one.
//
// The schema's version is SQLite's user_version.  Migrations go forward only,
// each in a transaction of its own.  Since version 3 every row of every table
// has a checksum of its other columns, which SQLite computes as it writes
// (row_checksum.h); triggers refuse to update a row that differs from its own,
// which would make a good checksum for wrong contents.  Jobs have two: that of
// the long texts stands in the row's own, so that lists need not read them.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_SCHEMA_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_SCHEMA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/store/store_db.h"

namespace roundhouse {

inline constexpr int kStoreSchemaVersion = 6;

// Brings a file of version `from` to version `to`.
// REQUIRES: 0 <= from, to <= kStoreSchemaVersion.
absl::Status MigrateSchema(Database* db, int64_t from, int64_t to);

// kDataLoss unless tables, indices and triggers are exactly those of `version`.
// REQUIRES: as above.
absl::Status CheckSchema(Database* db, int64_t version);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_SCHEMA_H_
