#include "client/progress.h"

#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text_width.h"
#include "base/visible_text.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

constexpr int kBarWidest = 40;  // characters between the brackets
constexpr int kBarNarrowest = 10;
constexpr char kToLineStart[] = "\r";
constexpr char kClearBelow[] = "\x1b[J";  // and to the line's end
constexpr char kNoColor[] = "\x1b[0m";

const char* ColorOf(v1::JobState state) {
  switch (state) {
    case v1::SUCCEEDED:
      return "\x1b[32m";
    case v1::FAILED:
      return "\x1b[31m";
    case v1::PAUSED:
    case v1::PAUSING:
    case v1::CANCELLING:
    case v1::CANCELLED:
    case v1::RECOVERING:
      return "\x1b[33m";
    default:
      return "\x1b[36m";
  }
}

std::string StepField(const Progress& progress) {
  return progress.total_steps <= 0
             ? absl::StrCat("step ", progress.step)
             : absl::StrCat("step ", progress.step, "/", progress.total_steps);
}

// In the order of their weight.
std::vector<std::string> Fields(const Progress& progress) {
  std::vector<std::string> fields;
  if (progress.data_read > 0) {
    fields.push_back("data read: " + DataReadText(progress.data_read));
  }
  if (progress.step > 0 || progress.total_steps > 0) {
    fields.push_back(StepField(progress));
  }
  if (progress.loss.has_value()) {
    fields.push_back("loss " + FormatLoss(*progress.loss));
  }
  if (progress.tokens_per_second > 0) {
    fields.push_back(FormatCount(progress.tokens_per_second) + " tokens/s");
  }
  if (progress.eta.has_value()) {
    fields.push_back("ETA " + ClockText(*progress.eta));
  }
  return fields;
}

std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return VisibleLine(text);
}

double ShareDone(const Progress& progress) {
  if (progress.total_steps <= 0) return DataReadShare(progress.data_read);
  return std::clamp(static_cast<double>(progress.step) /
                        static_cast<double>(progress.total_steps),
                    0.0, 1.0);
}

std::string Bar(double share, int width) {
  const int full = std::clamp(static_cast<int>(share * width), 0, width);
  return absl::StrCat("[", std::string(full, '#'),
                      std::string(width - full, '.'), "]");
}

}  // namespace

Progress ProgressOf(const v1::FineTuningJob& job, absl::Time now) {
  Progress progress;
  progress.state = job.state();
  progress.step = job.step();
  progress.total_steps = job.total_steps();
  progress.data_read = DataReadShare(job.data_read());
  if (job.has_loss()) {
    progress.loss = job.loss();
  }
  const bool running = job.state() == v1::RUNNING;
  progress.tokens_per_second = running ? job.tokens_per_second() : 0;
  if (running && job.has_eta()) {
    progress.eta = TimeOf(job.eta()) - now;
  }
  progress.message = OneLine(ReasonText(job));
  return progress;
}

std::string ProgressBar(const Progress& progress, int columns) {
  const size_t room = std::max(columns - 1, 0);
  std::string line = v1::JobState_Name(progress.state);
  std::string tail;
  for (const std::string& field : Fields(progress)) {
    if (line.size() + tail.size() + 2 + field.size() > room) {
      break;
    }
    absl::StrAppend(&tail, "  ", field);
  }
  const int bar_room =
      static_cast<int>(room) - static_cast<int>(line.size() + tail.size()) - 4;
  if ((progress.total_steps > 0 || progress.data_read > 0) &&
      bar_room >= kBarNarrowest) {
    absl::StrAppend(&line, "  ",
                    Bar(ShareDone(progress), std::min(bar_room, kBarWidest)));
  }
  line += tail;
  if (!progress.message.empty()) {
    absl::StrAppend(&line, "  ", progress.message);
  }
  return FitWidth(line, room);
}

std::string ProgressLine(const Progress& progress) {
  std::string line = v1::JobState_Name(progress.state);
  const char* separator = " ";
  for (const std::string& field : Fields(progress)) {
    absl::StrAppend(&line, separator, field);
    separator = ", ";
  }
  if (!progress.message.empty()) {
    absl::StrAppend(&line, ": ", progress.message);
  }
  return line;
}

ProgressPrinter::ProgressPrinter(Options options)
    : options_(std::move(options)) {}

void ProgressPrinter::Redraw(const Progress& progress) {
  std::string line = ProgressBar(progress, options_.columns());
  const std::string state = v1::JobState_Name(progress.state);
  if (options_.color && line.size() >= state.size()) {
    line = absl::StrCat(ColorOf(progress.state), state, kNoColor,
                        line.substr(state.size()));
  }
  *options_.stream << kToLineStart << kClearBelow << line << kToLineStart
                   << std::flush;
  shown_ = progress;
}

bool ProgressPrinter::LineDue(const Progress& progress, const std::string& line,
                              absl::Time now) const {
  if (!last_.has_value() || progress.state != last_->state ||
      progress.message != last_->message) {
    return true;
  }
  return line != last_line_ && now - last_time_ >= kPlainLineInterval;
}

void ProgressPrinter::Update(const Progress& progress, absl::Time now) {
  if (options_.redraw) {
    Redraw(progress);
    return;
  }
  const std::string line = ProgressLine(progress);
  if (!LineDue(progress, line, now)) {
    return;
  }
  *options_.stream << line << "\n" << std::flush;
  last_ = progress;
  last_line_ = line;
  last_time_ = now;
}

void ProgressPrinter::Note(const std::string& line) {
  if (shown_.has_value()) {
    *options_.stream << kToLineStart << kClearBelow;
    shown_.reset();
  }
  *options_.stream << line << "\n" << std::flush;
}

void ProgressPrinter::Finish() {
  if (!shown_.has_value()) return;
  // Whatever the terminal wrote over it, such as the ^C of a Ctrl-C.
  Redraw(Progress(*shown_));
  *options_.stream << "\n" << std::flush;
  shown_.reset();
}

}  // namespace roundhouse::client
