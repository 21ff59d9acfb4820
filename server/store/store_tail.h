// The end of a job store: how many commits it has and what was given out last,
// in its table meta and, beside it, in the mark (store_mark.h).
//
// Thread-compatible; on the writer's connection.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_TAIL_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_TAIL_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/store_db.h"
#include "server/store/store_mark.h"

namespace roundhouse {

// As of the last AdvanceTail.
absl::StatusOr<StoreMark> ReadTail(Database* db);

// Counts a commit and notes what was given out by now: the last write of each
// transaction.  Answers what the mark must say once that is on disk.
absl::StatusOr<StoreMark> AdvanceTail(Database* db);

// Never gives numbers and revisions up to `mark` (again), and takes its commits
// as made, and accounts as in use where it says so.  Watchers who ask for
// changes from before are told to list again.
absl::Status SkipTo(Database* db, const StoreMark& mark);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_TAIL_H_
