// Opening a job store: what must hold before anything is served from it.
//
//   jobs.db          the store, with its jobs.db-wal and jobs.db-shm
//   jobs.mark        what was given out (store_mark.h)
//   jobs.db.backup   the store as of the last start or stop, checked before
//   jobs.db.kept-T   a backup that was there when the store had lost something
//
// Private to server/store/store.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_OPEN_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_OPEN_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/store_db.h"
#include "server/store/store_mark.h"

namespace roundhouse {

struct OpenedStore {
  std::unique_ptr<Database> db;  // Writes.
  std::unique_ptr<MarkFile> mark;
  // What somebody should look at, a sentence each: acknowledged writes that are
  // lost, a mark that can't be read.
  std::vector<std::string> findings;
};

// Checks pages, schema and every row, migrates forward, compares with the mark
// and skips what that says was given, empties the WAL, makes a backup.
//
//   kDataLoss            damaged: names the row and what to do
//   kFailedPrecondition  written by a newer version
//   kResourceExhausted   the disk is full
absl::StatusOr<OpenedStore> OpenStore(const std::string& path, absl::Time now);

// Replaces the backup by the store as it is, atomically.
absl::Status BackUp(Database* db, const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_OPEN_H_
