#include "server/observe/device_ledger.h"

#include <algorithm>

namespace roundhouse {
namespace {

constexpr size_t kMaxSamples = 64;

}  // namespace

void DeviceLedger::AccountIdle(int64_t now_ns) {
  const int64_t span = std::max<int64_t>(0, now_ns - accounted_ns_);
  (busy_ ? total_.bubble_ns : total_.idle_ns) += span;
  accounted_ns_ = std::max(accounted_ns_, now_ns);
}

void DeviceLedger::SetBusy(bool busy, int64_t now_ns) {
  if (busy == busy_) return;
  AccountIdle(now_ns);
  busy_ = busy;
}

void DeviceLedger::AddSlot(int64_t ended_ns, int64_t compute_ns) {
  const int64_t span = std::max<int64_t>(0, ended_ns - accounted_ns_);
  const int64_t compute = std::min(compute_ns, span);
  total_.compute_ns += compute;
  (busy_ ? total_.bubble_ns : total_.idle_ns) += span - compute;
  accounted_ns_ = std::max(accounted_ns_, ended_ns);
}

DeviceTimes DeviceLedger::TakeNew(int64_t now_ns) {
  // While a job has work, a slot may be computing: it accounts for itself.
  if (!busy_) AccountIdle(now_ns);
  const DeviceTimes fresh = {total_.compute_ns - taken_.compute_ns,
                             total_.bubble_ns - taken_.bubble_ns,
                             total_.idle_ns - taken_.idle_ns};
  taken_ = total_;
  samples_.push_back({now_ns, total_.compute_ns, total_.bubble_ns});
  if (samples_.size() > kMaxSamples) samples_.pop_front();
  return fresh;
}

double DeviceLedger::BubbleRatio(int64_t window_ns) const {
  if (samples_.empty()) return 0;
  const Sample& last = samples_.back();
  const auto first = std::find_if(
      samples_.begin(), samples_.end(),
      [&](const Sample& s) { return s.at_ns >= last.at_ns - window_ns; });
  const auto compute = static_cast<double>(last.compute_ns - first->compute_ns);
  const auto bubble = static_cast<double>(last.bubble_ns - first->bubble_ns);
  return compute + bubble > 0 ? bubble / (compute + bubble) : 0;
}

}  // namespace roundhouse
