#include "server/store/store_schema.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/store/store_migrations.h"

namespace roundhouse {
namespace {

// What the schema looks like: each table, index and trigger as it was written.
absl::StatusOr<std::string> SchemaText(Database* db) {
  ASSIGN_OR_RETURN(Statement select,
                   db->Prepare("SELECT type, name, tbl_name, coalesce(sql, '') "
                               "FROM sqlite_schema ORDER BY type, name"));
  std::string text;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return text;
    absl::StrAppend(&text, select.Text(0), " ", select.Text(1), " ",
                    select.Text(2), ": ", select.Text(3), "\n");
  }
}

// REQUIRES: no transaction, for the tables that are made anew refer to each
// other until all of them are there.
absl::Status MigrateOne(Database* db, int from) {
  RETURN_IF_ERROR(db->Execute("PRAGMA foreign_keys=OFF"));
  absl::Status status = db->Execute(
      absl::StrCat("BEGIN IMMEDIATE;", Migration(from),
                   "PRAGMA user_version=", from + 1, ";", "COMMIT;"));
  if (!status.ok() && db->InTransaction()) {
    RETURN_IF_ERROR(db->Execute("ROLLBACK"));
  }
  RETURN_IF_ERROR(db->Execute("PRAGMA foreign_keys=ON"));
  return status;
}

}  // namespace

absl::Status MigrateSchema(Database* db, int64_t from, int64_t to) {
  for (int64_t version = from; version < to; ++version) {
    RETURN_IF_ERROR(MigrateOne(db, static_cast<int>(version)));
  }
  return absl::OkStatus();
}

absl::Status CheckSchema(Database* db, int64_t version) {
  ASSIGN_OR_RETURN(const auto fresh, Database::OpenInMemory());
  RETURN_IF_ERROR(MigrateSchema(fresh.get(), 0, version));
  ASSIGN_OR_RETURN(const std::string expected, SchemaText(fresh.get()));
  ASSIGN_OR_RETURN(const std::string found, SchemaText(db));
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("job store: its tables are not those of version ", version));
}

}  // namespace roundhouse
