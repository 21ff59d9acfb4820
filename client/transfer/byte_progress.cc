#include "client/transfer/byte_progress.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output.h"

namespace roundhouse::client {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kLineInterval = absl::Seconds(5);
constexpr int kBarColumns = 20;

}  // namespace

std::string ByteLine(const std::string& doing, uint64_t done, uint64_t total,
                     double bytes_per_second) {
  const double share =
      total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const int filled = static_cast<int>(share * kBarColumns);
  std::string line = absl::StrFormat(
      "%s [%s%s] %3d%%, %s of %s", doing, std::string(filled, '='),
      std::string(kBarColumns - filled, ' '), static_cast<int>(share * 100),
      FormatBytes(static_cast<int64_t>(done)),
      FormatBytes(static_cast<int64_t>(total)));
  if (bytes_per_second < 1) return line;
  absl::StrAppend(&line, ", ",
                  FormatBytes(static_cast<int64_t>(bytes_per_second)), "/s");
  return line;
}

void ByteProgress::Begin(const std::string& doing, uint64_t done,
                         uint64_t total) {
  doing_ = doing;
  total_ = total;
  began_with_ = done;
  began_ = environment_.now();
  next_ = began_ +
          (environment_.err_is_terminal ? absl::ZeroDuration() : kLineInterval);
  Update(done);
}

void ByteProgress::Update(uint64_t done) {
  const absl::Time now = environment_.now();
  if (now < next_) return;
  const double seconds = absl::ToDoubleSeconds(now - began_);
  const double rate =
      seconds > 0
          ? static_cast<double>(done - std::min(done, began_with_)) / seconds
          : 0;
  const std::string line =
      ByteLine(doing_, std::min(done, total_), total_, rate);
  if (environment_.err_is_terminal) {
    next_ = now + kRedrawInterval;
    shown_ = true;
    *environment_.err << "\r\x1b[K" << line << std::flush;
    return;
  }
  next_ = now + kLineInterval;
  *environment_.err << line << "\n" << std::flush;
}

void ByteProgress::Finish() {
  if (shown_) *environment_.err << "\r\x1b[K" << std::flush;
  shown_ = false;
}

}  // namespace roundhouse::client
