// Rows of the job store's tables -> records.  For server/store and whoever
// keeps a table of its own in the store (server/access).
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_ROWS_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_ROWS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/store_db.h"
#include "server/store/store_records.h"

namespace roundhouse {

// Whether the two long columns of a job are read; '' where they are not.
enum class JobTexts { kLeftOut, kRead };

// The columns that ReadJob expects, for SELECT.  Each Read* is kDataLoss for a
// row that differs from its checksum.
std::string JobColumns(JobTexts texts);
absl::StatusOr<JobRecord> ReadJob(const Statement& row);

std::string EventColumns();
absl::StatusOr<JobEvent> ReadEvent(const Statement& row);

// kNotFound.
absl::StatusOr<JobRecord> SelectJob(Database* db, int64_t number,
                                    JobTexts texts);

// A value of the table meta.  kDataLoss when it is not there.
absl::StatusOr<int64_t> ReadMeta(Database* db, const std::string& key);

// The number of the newest job of that output_name; 0: none.
absl::StatusOr<int64_t> JobOfOutputName(Database* db, const std::string& name);
// kInvalidArgument naming the job that has it.
absl::Status OutputNameIsFree(Database* db, const std::string& name);

// Microseconds since the epoch; 0 is "not yet".
inline int64_t ToMicros(absl::Time t) { return absl::ToUnixMicros(t); }

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_ROWS_H_
