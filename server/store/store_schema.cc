#include "server/store/store_schema.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// Entry i brings version i to i + 1.  Never edit an entry that was released.
constexpr const char* kMigrations[kStoreSchemaVersion] = {
    R"sql(
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL UNIQUE,
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  message TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  text TEXT NOT NULL,
  resolved TEXT NOT NULL,
  output_name TEXT NOT NULL,
  output_path TEXT NOT NULL,
  last_checkpoint TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  progress TEXT NOT NULL
);
CREATE INDEX jobs_by_state ON jobs(state, number);
CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs(number),
  attempt INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  end_state INTEGER NOT NULL,
  PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
CREATE TABLE events (
  revision INTEGER PRIMARY KEY AUTOINCREMENT,
  job INTEGER NOT NULL REFERENCES jobs(number),
  time_us INTEGER NOT NULL,
  type TEXT NOT NULL,
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  message TEXT NOT NULL,
  step INTEGER NOT NULL
);
CREATE INDEX events_by_job ON events(job, revision);
CREATE TABLE requests (
  principal TEXT NOT NULL,
  request_id TEXT NOT NULL,
  payload_sha256 TEXT NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs(number),
  create_us INTEGER NOT NULL,
  PRIMARY KEY (principal, request_id)
) WITHOUT ROWID;
CREATE INDEX requests_by_time ON requests(create_us);
CREATE TABLE checkpoints (
  job INTEGER NOT NULL REFERENCES jobs(number),
  step INTEGER NOT NULL,
  path TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  create_us INTEGER NOT NULL,
  PRIMARY KEY (job, step)
) WITHOUT ROWID;
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES ('compaction_floor', 0);
)sql",
    R"sql(
CREATE INDEX jobs_by_output_name ON jobs(output_name, number)
  WHERE output_name <> '';
)sql"};

absl::Status QuickCheck(Database* db) {
  ASSIGN_OR_RETURN(Statement check, db->Prepare("PRAGMA quick_check(1)"));
  ASSIGN_OR_RETURN(const bool row, check.Step());
  if (row && check.Text(0) == "ok") return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("job store: quick_check: ",
                                          row ? check.Text(0) : "no answer"));
}

absl::Status Migrate(Database* db, int from) {
  RETURN_IF_ERROR(
      db->Execute(absl::StrCat("BEGIN IMMEDIATE;", kMigrations[from],
                               "PRAGMA user_version=", from + 1, ";")));
  return db->Execute("COMMIT;");
}

}  // namespace

absl::Status PrepareSchema(Database* db) {
  RETURN_IF_ERROR(QuickCheck(db));
  ASSIGN_OR_RETURN(const int64_t version, db->QueryInt("PRAGMA user_version"));
  if (version < 0 || version > kStoreSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job store: its version is ", version, ", this program knows ",
        kStoreSchemaVersion,
        " at most; it was written by a newer Roundhouse, start that one"));
  }
  for (int from = static_cast<int>(version); from < kStoreSchemaVersion;
       ++from) {
    RETURN_IF_ERROR(Migrate(db, from));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
