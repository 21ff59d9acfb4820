#include "server/store/store_tail.h"

#include <algorithm>
#include <string>

#include "base/status.h"
#include "server/store/store_rows.h"

namespace roundhouse {
namespace {

constexpr char kAdvance[] =
    "UPDATE meta SET value = CASE key "
    "WHEN 'commit_number' THEN value + 1 "
    "WHEN 'last_job' THEN "
    "(SELECT seq FROM sqlite_sequence WHERE name = 'jobs') "
    "WHEN 'last_revision' THEN "
    "(SELECT seq FROM sqlite_sequence WHERE name = 'events') "
    "WHEN 'accounts' THEN max(value, EXISTS (SELECT 1 FROM users)) "
    "END WHERE key IN "
    "('commit_number', 'last_job', 'last_revision', 'accounts') "
    "RETURNING key, value";

absl::Status SetMeta(Database* db, const std::string& key, int64_t value) {
  ASSIGN_OR_RETURN(Statement update,
                   db->Prepare("UPDATE meta SET value = ? WHERE key = ?"));
  return update.Bind(value).Bind(key).Run();
}

absl::Status SetSequence(Database* db, const std::string& table, int64_t last) {
  ASSIGN_OR_RETURN(
      Statement update,
      db->Prepare("UPDATE sqlite_sequence SET seq = ? WHERE name = ?"));
  return update.Bind(last).Bind(table).Run();
}

}  // namespace

absl::StatusOr<StoreMark> ReadTail(Database* db) {
  StoreMark tail;
  ASSIGN_OR_RETURN(tail.commit, ReadMeta(db, "commit_number"));
  ASSIGN_OR_RETURN(tail.job, ReadMeta(db, "last_job"));
  ASSIGN_OR_RETURN(tail.revision, ReadMeta(db, "last_revision"));
  ASSIGN_OR_RETURN(tail.accounts, ReadMeta(db, "accounts"));
  return tail;
}

absl::StatusOr<StoreMark> AdvanceTail(Database* db) {
  ASSIGN_OR_RETURN(Statement advance, db->Prepare(kAdvance));
  StoreMark tail;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, advance.Step());
    if (!row) return tail;
    const std::string key = advance.Text(0);
    if (key == "commit_number") tail.commit = advance.Int(1);
    if (key == "last_job") tail.job = advance.Int(1);
    if (key == "last_revision") tail.revision = advance.Int(1);
    if (key == "accounts") tail.accounts = advance.Int(1);
  }
}

absl::Status SkipTo(Database* db, const StoreMark& mark) {
  ASSIGN_OR_RETURN(const StoreMark tail, ReadTail(db));
  RETURN_IF_ERROR(
      SetMeta(db, "commit_number", std::max(tail.commit, mark.commit)));
  RETURN_IF_ERROR(SetSequence(db, "jobs", std::max(tail.job, mark.job)));
  RETURN_IF_ERROR(
      SetMeta(db, "accounts", std::max(tail.accounts, mark.accounts)));
  if (mark.revision <= tail.revision) return absl::OkStatus();
  RETURN_IF_ERROR(SetSequence(db, "events", mark.revision));
  return SetMeta(db, "compaction_floor", mark.revision);
}

}  // namespace roundhouse
