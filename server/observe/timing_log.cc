#include "server/observe/timing_log.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace roundhouse {

absl::StatusOr<std::unique_ptr<TimingLog>> TimingLog::Create(
    const std::string& path) {
  std::ofstream file(path, std::ios::trunc);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sample-log: cannot write ", path));
  }
  return std::unique_ptr<TimingLog>(new TimingLog(std::move(file)));
}

bool TimingLog::Room() {
  if (lines_ == kMaxTimings) {
    RH_LOG(kWarning) << "--sample-log: only the first " << kMaxTimings
                     << " samples are kept";
  }
  return lines_++ < kMaxTimings;
}

void TimingLog::AddDispatch(double seconds) {
  if (!Room()) return;
  file_ << "dispatch," << std::llround(seconds * 1e9) << '\n';
}

void TimingLog::AddUrgent(double seconds) {
  if (!Room()) return;
  file_ << "urgent," << std::llround(seconds * 1e9) << '\n';
}

void TimingLog::AddSlot(int device, const wire::SlotDone& done) {
  if (!Room()) return;
  file_ << "slot," << device << ',' << done.started_ns << ',' << done.ended_ns
        << ',' << done.wait_ns << ',' << done.h2d_ns << ',' << done.compute_ns
        << ',' << done.d2h_ns << '\n';
  for (const wire::LayerTime& time : done.layers) {
    if (!Room()) return;
    file_ << "layer," << time.layer << ',' << time.forward_ns << ','
          << time.backward_ns << '\n';
  }
}

void TimingLog::AddHostOp(const wire::HostOpDone& done) {
  if (!Room()) return;
  file_ << "host," << done.started_ns << ',' << done.ended_ns << '\n';
}

void TimingLog::AddStep(int64_t step, int64_t now_ns) {
  if (!Room()) return;
  file_ << "step," << step << ',' << now_ns << std::endl;
}

}  // namespace roundhouse
