// Whether a job store's file is what was written to it.
//
// Blocks for a read of the whole file.  Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_CHECK_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "server/store/store_db.h"

namespace roundhouse {

// SQLite's integrity_check.  kDataLoss with its words.
absl::Status CheckPages(Database* db);

// Every row of every table against its checksum, references between tables, and
// the numbers given out against meta's.  kDataLoss names the table and the row.
// REQUIRES: a schema of kStoreSchemaVersion.
absl::Status CheckRows(Database* db);

// The expression that is 1 for a row of this table that is what was written, as
// a column of a SELECT.  For "jobs" without the two long texts, whose own is
// kTextsAreWhole.
// REQUIRES: the name of a table of the store.
std::string RowIsWhole(const std::string& table);
extern const char kTextsAreWhole[];

// What to say of a row that is not.
absl::Status DamagedRow(const std::string& table, const std::string& row);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_CHECK_H_
