// What becomes of a dataset's rows when a job goes on from another job's
// checkpoint.  Its place in the data is a step of its own order of batches:
// with another batch_size or seed that is another place than where the
// checkpoint's job was, and some rows are trained on once more than both jobs
// said, others once less.
//
// Pure functions; thread-safe.
#ifndef ROUNDHOUSE_SERVER_RUN_RESUMED_ROWS_H_
#define ROUNDHOUSE_SERVER_RUN_RESUMED_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace roundhouse {

// How a job takes rows, as BatchOrder has it.
struct RowOrder {
  int64_t batch_size = 1;
  uint64_t seed = 0;

  bool operator==(const RowOrder&) const = default;
};

// Named rows are few.
inline constexpr size_t kNamedRows = 5;

struct ResumedRows {
  // How often a row is trained on again, or left out, over all rows.
  int64_t again = 0;
  int64_t left_out = 0;
  std::vector<int64_t> first_again;  // the lowest rows, at most kNamedRows
  std::vector<int64_t> first_left_out;
};

// Compares what `steps` steps took in the order of `before` with what they
// would have taken in that of `now`.  Needs two bits a row, and four bytes
// while it counts.
// REQUIRES: rows >= 1, steps >= 0, batch sizes of 1 and more.
ResumedRows CompareRows(int64_t rows, int64_t steps, const RowOrder& before,
                        const RowOrder& now);

// For people, to follow the checkpoint's name; the lines are those of the rows
// that are named.
std::string ResumedRowsText(const ResumedRows& found, int64_t steps,
                            const RowOrder& before, const RowOrder& now,
                            const std::vector<int64_t>& lines_again,
                            const std::vector<int64_t>& lines_left_out);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_RUN_RESUMED_ROWS_H_
