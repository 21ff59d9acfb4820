// Rows of the job store's tables -> records.  For server/store and whoever
// keeps a table of its own in the store (server/access).
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_ROWS_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
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

// The row of a job that was deleted stays for a while (store_removal.cc) with
// one of these in its output_name, which no job can ask for.
inline constexpr char kRemoving[] = "/removing";  // files may be there
inline constexpr char kRemoved[] = "/removed";    // they are gone
// Terms of SQL about rows of jobs; the second one goes through an index.
inline constexpr char kJobIsThere[] = "substr(output_name, 1, 1) <> '/'";
// Names the two above once more.
inline constexpr char kJobWasRemoved[] =
    "(output_name IN ('/removing', '/removed') AND output_name <> '')";

// Numbers of the states that are not final, "1, 2": jobs are found by state.
std::string LiveStates();
// kFailedPrecondition: jobs that have not ended use `what`.  Names the first
// five.
absl::Status UsedByJobs(const std::string& what,
                        std::vector<std::string> users);
// One more than UsedByJobs shows.
inline constexpr size_t kMaxAskedUsers = 6;

// kNotFound, also for one that was deleted.
absl::StatusOr<JobRecord> SelectJob(Database* db, int64_t number,
                                    JobTexts texts);
// The same; that one, too, without its texts.
absl::StatusOr<JobRecord> SelectAnyJob(Database* db, int64_t number,
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
