// A job's progress as text: one line that redraws itself on a terminal, plain
// lines at a bounded rate elsewhere.
//
// The functions are pure; ProgressPrinter is thread-compatible.
#ifndef ROUNDHOUSE_CLIENT_PROGRESS_H_
#define ROUNDHOUSE_CLIENT_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/roundhouse/v1/fine_tuning_job.pb.h"

namespace roundhouse::client {

// Between two plain lines of one state.
inline constexpr absl::Duration kPlainLineInterval = absl::Seconds(5);

struct Progress {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  int64_t step = 0;
  int64_t total_steps = 0;  // 0: not known yet
  double data_read = 0;     // share of the datasets, before there are steps
  std::optional<double> loss;
  double tokens_per_second = 0;  // 0: not known
  std::optional<absl::Duration> eta;
  // Why it waits, "" where nothing is to be said.
  std::string message;
};

Progress ProgressOf(const v1::FineTuningJob& job, absl::Time now);

// One line without its newline that takes `columns` - 1 columns at most.  Where
// it is too narrow, the bar shrinks and goes first, then the fields from the
// right.
std::string ProgressBar(const Progress& progress, int columns);

// "RUNNING step 3/10, loss 2.1000, 13.2k tokens/s, ETA 0:42".
std::string ProgressLine(const Progress& progress);

// Shows updates on a stream.
//
// After each draw the cursor stands at the bar's beginning.  A terminal that
// becomes narrower breaks a bar that is too wide for it into several lines,
// and keeps the cursor with the first of them, so that the next draw clears
// them all.
class ProgressPrinter {
 public:
  struct Options {
    std::ostream* stream = nullptr;  // borrowed
    // A redrawn line; else plain ones.
    bool redraw = false;
    bool color = false;
    std::function<int()> columns;  // of the terminal, now; with redraw only
  };

  explicit ProgressPrinter(Options options);

  // Redraws; or writes a plain line when the state or its message changed, or
  // when kPlainLineInterval has passed and there is something new.
  void Update(const Progress& progress, absl::Time now);
  // A line of its own, above the bar.
  void Note(const std::string& line);
  // Leaves the last bar standing on its line.  Idempotent.
  void Finish();

 private:
  void Redraw(const Progress& progress);
  bool LineDue(const Progress& progress, const std::string& line,
               absl::Time now) const;

  Options options_;
  std::optional<Progress> shown_;  // as a bar that is to be cleared
  std::optional<Progress> last_;   // as a line
  std::string last_line_;
  absl::Time last_time_ = absl::InfinitePast();
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_PROGRESS_H_
