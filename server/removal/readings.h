// Who reads jobs' checkpoints and results now, so that nobody deletes them
// meanwhile, and what is being deleted, so that nobody begins to read it.
//
//   ASSIGN_OR_RETURN(plan.reading, readings.Begin({path}, "a sample of anna"));
//
//   ASSIGN_OR_RETURN(const auto closed, readings.Close({directory}));
//
// Paths elsewhere than in the daemon's own folders of jobs and outputs don't
// matter here.  Jobs that have not ended are asked of the store (weight_use.h).
//
// Thread-safe; waits for no disk.
#ifndef ROUNDHOUSE_SERVER_REMOVAL_READINGS_H_
#define ROUNDHOUSE_SERVER_REMOVAL_READINGS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/removal/state_paths.h"

namespace roundhouse {

// Files that are read piece by piece count as read so long after each piece.
inline constexpr absl::Duration kReadingLasts = absl::Seconds(20);
// Directories that are read so; the one that was read first is forgotten.
inline constexpr size_t kMaxTouched = 1024;

// Counts as long as it is there.  Shared, since copies of what it is for are
// made and only the last of them ends it; it may outlive the Readings.
using ReadingTicket = std::shared_ptr<const void>;

class Readings {
 public:
  // `clock` outlives it.
  explicit Readings(const std::string& state_dir,
                    const Clock& clock = SystemClock());
  Readings(const Readings&) = delete;
  Readings& operator=(const Readings&) = delete;

  // kNotFound: one of them is being deleted.  `who` is for messages.
  absl::StatusOr<ReadingTicket> Begin(const std::vector<std::string>& paths,
                                      const std::string& who);
  // A piece of it was read.  The error is Begin's.
  absl::Status Touch(const std::string& path, const std::string& who);
  // kFailedPrecondition says who reads one of them; kAborted: they are being
  // deleted.
  absl::Status CheckUnread(const std::vector<std::string>& paths) const;
  // Nobody begins to read them, as long as the ticket is there.  The errors are
  // CheckUnread's.
  absl::StatusOr<ReadingTicket> Close(const std::vector<std::string>& paths);

 private:
  struct Book;

  std::vector<std::string> NamesOf(const std::vector<std::string>& paths) const;

  const StatePaths paths_;
  const Clock& clock_;
  // Shared with the tickets.
  const std::shared_ptr<Book> book_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_REMOVAL_READINGS_H_
