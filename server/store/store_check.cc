#include "server/store/store_check.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace roundhouse {
namespace {

struct Table {
  const char* name;
  const char* key;      // An expression that names the row.
  const char* columns;  // what `checksum` covers, in its order
};

constexpr Table kTables[] = {
    {"jobs", "'job-' || number",
     "number, uid, state, reason, message, create_us, start_us, end_us, "
     "output_name, output_path, last_checkpoint, attempts, revision, dataset, "
     "progress, owner, project, principal, priority, text_checksum"},
    {"attempts", "'job-' || job || ' attempt ' || attempt",
     "job, attempt, start_us, end_us, end_state"},
    {"events", "'revision ' || revision",
     "revision, job, time_us, type, state, reason, message, step"},
    {"requests", "principal || ' ' || request_id",
     "principal, request_id, payload_sha256, job, create_us"},
    {"checkpoints", "'job-' || job || ' step ' || step",
     "job, step, path, size_bytes, create_us"},
    {"meta", "key", "key, value"},
    {"users", "name", "name, uid, admin, create_us, remove_us"},
    {"projects", "name", "name, create_us"},
    {"members", "project || ' ' || user", "project, user, role"},
    {"audit", "number",
     "number, time_us, principal, user, token, peer, rpc, part, resource, "
     "code, reason, message, count, duration_us"},
    {"limits", "subject || ' ' || name", "subject, name, value, change_us"},
    {"uploads", "id",
     "id, kind, project, name, version, state, owner, create_us, finish_us, "
     "manifest"},
    {"tokens", "id",
     "id, user, name, sha256, scope, create_us, expire_us, last_use_us, "
     "revoke_us"},
    {"device_loans", "device", "device, kind, owner, note, since_us, until_us"},
    {"usage", "'hour ' || hour || ' job-' || job || ' of ' || user",
     "hour, job, project, user, part, device_ns, host_mib_seconds"}};

absl::Status CheckTable(Database* db, const Table& table) {
  std::string whole = RowIsWhole(table.name);
  if (table.name == kTables[0].name) {
    absl::StrAppend(&whole, " AND ", kTextsAreWhole);
  }
  ASSIGN_OR_RETURN(Statement select,
                   db->Prepare(absl::StrCat(
                       "SELECT ", table.key, " FROM ", table.name,
                       " NOT INDEXED WHERE NOT (", whole, ") LIMIT 1")));
  ASSIGN_OR_RETURN(const bool found, select.Step());
  return found ? DamagedRow(table.name, select.Text(0)) : absl::OkStatus();
}

absl::Status CheckReferences(Database* db) {
  ASSIGN_OR_RETURN(Statement check, db->Prepare("PRAGMA foreign_key_check"));
  ASSIGN_OR_RETURN(const bool found, check.Step());
  if (!found) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("job store: a row of ", check.Text(0),
                                          " belongs to a row of ",
                                          check.Text(2), " that is not there"));
}

// What AUTOINCREMENT keeps has no checksum; meta says the same and has one.
absl::Status CheckNumbers(Database* db) {
  ASSIGN_OR_RETURN(
      const int64_t wrong,
      db->QueryInt(
          "SELECT (SELECT count(*) FROM meta) <> 5 OR EXISTS ("
          "SELECT 1 FROM (SELECT 'jobs' AS name, 'last_job' AS key,"
          " (SELECT max(number) FROM jobs) AS last UNION ALL "
          "SELECT 'events', 'last_revision', "
          "(SELECT max(revision) FROM events)) AS t "
          "WHERE (SELECT value FROM meta WHERE meta.key = t.key) IS NOT "
          "(SELECT seq FROM sqlite_sequence AS s WHERE s.name = t.name) "
          "OR coalesce(t.last, 0) > "
          "(SELECT value FROM meta WHERE meta.key = t.key))"));
  if (wrong == 0) return absl::OkStatus();
  return absl::DataLossError(
      "job store: the last numbers given differ between sqlite_sequence, meta "
      "and the rows");
}

}  // namespace

const char kTextsAreWhole[] =
    "(text_checksum IS row_checksum(text, resolved, files))";

std::string RowIsWhole(const std::string& table) {
  for (const Table& known : kTables) {
    if (table != known.name) continue;
    return absl::StrCat("(checksum IS row_checksum(", known.columns, "))");
  }
  ROUNDHOUSE_CHECK(false) << "no table " << table;
  return "";
}

absl::Status DamagedRow(const std::string& table, const std::string& row) {
  return absl::DataLossError(absl::StrCat("job store: table ", table, ", row ",
                                          row, ": differs from its checksum"));
}

absl::Status CheckPages(Database* db) {
  ASSIGN_OR_RETURN(Statement check, db->Prepare("PRAGMA integrity_check(1)"));
  ASSIGN_OR_RETURN(const bool row, check.Step());
  if (row && check.Text(0) == "ok") return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("job store: integrity_check: ",
                                          row ? check.Text(0) : "no answer"));
}

absl::Status CheckRows(Database* db) {
  for (const Table& table : kTables) RETURN_IF_ERROR(CheckTable(db, table));
  RETURN_IF_ERROR(CheckReferences(db));
  return CheckNumbers(db);
}

}  // namespace roundhouse
