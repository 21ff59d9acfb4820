#include "server/store/store_db.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/store/row_checksum.h"
#include "sqlite3.h"

namespace roundhouse {
namespace {

constexpr int kBusyTimeoutMs = 5000;

// SQLite knows a full disk by ENOSPC of a write to the database only; of the
// rest it keeps no errno for a commit, so that callers clear it before.
bool IsFull(int code, int error) {
  if ((code & 0xff) == SQLITE_FULL) return true;
  return (code & 0xff) == SQLITE_IOERR &&
         (error == ENOSPC || error == EDQUOT || error == EFBIG);
}

absl::Status FromSqlite(sqlite3* db, int code) {
  const int error = errno;
  const std::string message = absl::StrCat(
      "job store: ", db == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db));
  if (IsFull(code, error)) {
    return FieldError(absl::StatusCode::kResourceExhausted,
                      FieldReason::kStorageFull, "", message);
  }
  switch (code & 0xff) {
    case SQLITE_CONSTRAINT:
      // Only the schema's checks of rows raise from triggers.
      return code == SQLITE_CONSTRAINT_TRIGGER ? absl::DataLossError(message)
                                               : absl::InternalError(message);
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return absl::UnavailableError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : db_(other.db_),
      statement_(std::exchange(other.statement_, nullptr)),
      next_parameter_(other.next_parameter_) {}

Statement::~Statement() {
  if (statement_ != nullptr) db_->TakeBack(statement_);
}

Statement& Statement::Bind(int64_t value) {
  ROUNDHOUSE_CHECK(sqlite3_bind_int64(statement_, next_parameter_++, value) ==
                   SQLITE_OK);
  return *this;
}

Statement& Statement::Bind(double value) {
  ROUNDHOUSE_CHECK(sqlite3_bind_double(statement_, next_parameter_++, value) ==
                   SQLITE_OK);
  return *this;
}

Statement& Statement::Bind(const std::string& value) {
  ROUNDHOUSE_CHECK(sqlite3_bind_text64(statement_, next_parameter_++,
                                       value.data(), value.size(),
                                       SQLITE_TRANSIENT,
                                       SQLITE_UTF8) == SQLITE_OK);
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  errno = 0;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return FromSqlite(db_->db_, code);
}

absl::Status Statement::Run() { return Step().status(); }

int64_t Statement::Int(int column) const {
  return sqlite3_column_int64(statement_, column);
}

double Statement::Double(int column) const {
  return sqlite3_column_double(statement_, column);
}

std::string Statement::Text(int column) const {
  const auto* text = sqlite3_column_text(statement_, column);
  if (text == nullptr) return "";
  return std::string(reinterpret_cast<const char*>(text),
                     sqlite3_column_bytes(statement_, column));
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenFile(
    const std::string& path) {
  errno = 0;
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &raw,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
      nullptr);
  std::unique_ptr<Database> db(new Database(raw));
  if (code != SQLITE_OK) return FromSqlite(raw, code);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  const int registered = RegisterRowChecksum(raw);
  if (registered != SQLITE_OK) return FromSqlite(raw, registered);
  return db;
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenInMemory() {
  return OpenFile(":memory:");
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(
    const std::string& path, Mode mode) {
  ASSIGN_OR_RETURN(auto db, OpenFile(path));
  RETURN_IF_ERROR(
      db->Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                  "PRAGMA foreign_keys=ON;"));
  if (mode == Mode::kRead) {
    RETURN_IF_ERROR(db->Execute("PRAGMA query_only=ON;"));
  }
  return db;
}

Database::~Database() {
  for (const auto& [sql, statement] : idle_) sqlite3_finalize(statement);
  sqlite3_close_v2(db_);
}

absl::Status Database::Execute(const std::string& sql) {
  errno = 0;
  const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : FromSqlite(db_, code);
}

absl::StatusOr<Statement> Database::Prepare(const std::string& sql) {
  const auto idle = idle_.find(sql);
  if (idle != idle_.end()) {
    sqlite3_stmt* const statement = idle->second;
    idle_.erase(idle);
    return Statement(this, statement);
  }
  errno = 0;
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr);
  if (code != SQLITE_OK) return FromSqlite(db_, code);
  return Statement(this, statement);
}

void Database::TakeBack(sqlite3_stmt* statement) {
  if (idle_.size() >= kMaxIdleStatements) {
    sqlite3_finalize(statement);
    return;
  }
  // An error of its last step comes again; it was answered then.
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  idle_.emplace(sqlite3_sql(statement), statement);
}

absl::StatusOr<int64_t> Database::QueryInt(const std::string& sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::NotFoundError("no row");
  return statement.Int(0);
}

int64_t Database::LastInsertId() const {
  return sqlite3_last_insert_rowid(db_);
}

int64_t Database::Changes() const { return sqlite3_changes(db_); }

bool Database::InTransaction() const { return !sqlite3_get_autocommit(db_); }

absl::Status Database::Checkpoint(Wal after) {
  const int code = sqlite3_wal_checkpoint_v2(db_, nullptr,
                                             after == Wal::kTruncate
                                                 ? SQLITE_CHECKPOINT_TRUNCATE
                                                 : SQLITE_CHECKPOINT_RESTART,
                                             nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : FromSqlite(db_, code);
}

absl::Status Database::CopyTo(const std::string& path) {
  ASSIGN_OR_RETURN(const auto copy, OpenFile(path));
  RETURN_IF_ERROR(copy->Execute("PRAGMA synchronous=FULL"));
  sqlite3_backup* const backup =
      sqlite3_backup_init(copy->db_, "main", db_, "main");
  if (backup == nullptr) {
    return FromSqlite(copy->db_, sqlite3_extended_errcode(copy->db_));
  }
  sqlite3_backup_step(backup, -1);  // All pages; finish has its errors.
  const int code = sqlite3_backup_finish(backup);
  return code == SQLITE_OK ? absl::OkStatus() : FromSqlite(copy->db_, code);
}

}  // namespace roundhouse
