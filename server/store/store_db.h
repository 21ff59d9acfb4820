// SQLite behind absl::Status: a connection and a prepared statement.
//
//   kResourceExhausted  the disk is full (reason STORAGE_FULL)
//   kDataLoss           the file is corrupt or no database, or a row differs
//                       from its checksum
//   kUnavailable        locked by someone else, or the system refuses to read
//                       or write the file
//   kInternal           everything else, with SQLite's words
//
// Thread-compatible: one thread at a time per connection and its statements.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_DB_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_DB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace roundhouse {

// Statements that a connection keeps for the next time.
inline constexpr size_t kMaxIdleStatements = 64;

class Database;

// Parameters and columns count from 1 and 0, as in SQLite.  Goes back to its
// connection, which must outlive it.
class Statement {
 public:
  Statement(Statement&& other) noexcept;
  ~Statement();

  Statement& Bind(int64_t value);
  Statement& Bind(double value);
  Statement& Bind(const std::string& value);

  // True: a row is there.  False: done.
  absl::StatusOr<bool> Step();
  // Runs a statement that gives no rows.
  absl::Status Run();

  int64_t Int(int column) const;
  double Double(int column) const;
  std::string Text(int column) const;

 private:
  friend class Database;
  Statement(Database* db, sqlite3_stmt* statement)
      : db_(db), statement_(statement) {}

  Database* db_;
  sqlite3_stmt* statement_;
  int next_parameter_ = 1;
};

class Database {
 public:
  enum class Mode { kWrite, kRead };

  // WAL, synchronous=FULL, foreign keys on; SQL has row_checksum.  kRead
  // connections refuse writes.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        Mode mode);
  // Empty, for comparisons.
  static absl::StatusOr<std::unique_ptr<Database>> OpenInMemory();
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // One or more statements without parameters.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql);
  // The first column of the first row; kNotFound without a row.
  absl::StatusOr<int64_t> QueryInt(const std::string& sql);
  int64_t LastInsertId() const;
  int64_t Changes() const;
  bool InTransaction() const;
  // Moves the whole WAL into the file.  kRestart leaves its bytes for the next
  // writes to take the place of, which costs those less than a file that grows;
  // kTruncate leaves none.  kUnavailable: a reader was in the way for longer
  // than the busy timeout.
  enum class Wal { kRestart, kTruncate };
  absl::Status Checkpoint(Wal after);
  // Writes the contents to a new database at `path`, synced.
  absl::Status CopyTo(const std::string& path);

 private:
  friend class Statement;
  explicit Database(sqlite3* db) : db_(db) {}
  static absl::StatusOr<std::unique_ptr<Database>> OpenFile(
      const std::string& path);
  void TakeBack(sqlite3_stmt* statement);

  sqlite3* db_;
  // Compiled once, used again: the schema's checks are long.  By their text.
  std::multimap<std::string, sqlite3_stmt*> idle_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_DB_H_
