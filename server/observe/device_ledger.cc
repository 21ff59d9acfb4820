#include "server/observe/device_ledger.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace roundhouse {
namespace {

constexpr size_t kMaxSamples = 64;
constexpr auto kDispatch = static_cast<uint32_t>(wire::WaitCause::kDispatch);

int64_t Sum(const wire::WaitTimes& waits) {
  return std::accumulate(waits.begin(), waits.end(), int64_t{0});
}

// No more than `limit_ns` in all.  What goes first is the wait for the slot
// itself: it was the earliest.
wire::WaitTimes Cut(wire::WaitTimes waits, int64_t limit_ns) {
  for (int64_t& wait : waits) wait = std::max<int64_t>(0, wait);
  int64_t excess = std::max<int64_t>(0, Sum(waits) - limit_ns);
  const auto cut = [&excess](int64_t& wait) {
    const int64_t gone = std::min(wait, excess);
    wait -= gone;
    excess -= gone;
  };
  cut(waits[kDispatch]);
  for (int64_t& wait : waits) cut(wait);
  return waits;
}

DeviceTimes Minus(const DeviceTimes& a, const DeviceTimes& b) {
  DeviceTimes left = {
      .compute_ns = a.compute_ns - b.compute_ns,
      .bubble_ns = a.bubble_ns - b.bubble_ns,
      .idle_ns = a.idle_ns - b.idle_ns,
      .fenced_ns = a.fenced_ns - b.fenced_ns,
      .filled_bubble_ns = a.filled_bubble_ns - b.filled_bubble_ns};
  for (int c = 0; c < wire::kWaitCauses; ++c) {
    left.bubble_causes_ns[c] = a.bubble_causes_ns[c] - b.bubble_causes_ns[c];
  }
  return left;
}

}  // namespace

int64_t DeviceLedger::Advance(int64_t to_ns) {
  const int64_t span = std::max<int64_t>(0, to_ns - accounted_ns_);
  accounted_ns_ += span;
  return span;
}

void DeviceLedger::AccountWaiting(int64_t now_ns) {
  const int64_t span = Advance(now_ns);
  if (fenced_) {
    total_.fenced_ns += span;
  } else if (busy_) {
    total_.bubble_ns += span;
    uncaused_ns_ += span;
  } else {
    total_.idle_ns += span;
  }
}

void DeviceLedger::AccountComputing(int64_t ns) {
  total_.compute_ns += ns;
  if (fills_bubble_) total_.filled_bubble_ns += ns;
}

// What nobody explains was a wait for a slot.
void DeviceLedger::GiveCauses(const wire::WaitTimes& waits) {
  const wire::WaitTimes known = Cut(waits, uncaused_ns_);
  for (int c = 0; c < wire::kWaitCauses; ++c) {
    total_.bubble_causes_ns[c] += known[c];
  }
  total_.bubble_causes_ns[kDispatch] += uncaused_ns_ - Sum(known);
  uncaused_ns_ = 0;
}

void DeviceLedger::SetBusy(bool busy, int64_t now_ns) {
  if (busy == busy_) return;
  if (!computing_) AccountWaiting(now_ns);
  busy_ = busy;
  if (busy) return;
  // No slot will say what they were for: all that a job without slots still has
  // steps for are the host's last reductions.
  wire::WaitTimes waits = {};
  waits[static_cast<uint32_t>(wire::WaitCause::kOptimizer)] = uncaused_ns_;
  GiveCauses(waits);
}

void DeviceLedger::Fence(int64_t now_ns) {
  GaveUp(now_ns);
  AccountWaiting(now_ns);
  GiveCauses({});
  fenced_ = true;
}

void DeviceLedger::Unfence(int64_t now_ns) {
  if (!fenced_) return;
  AccountWaiting(now_ns);
  fenced_ = false;
}

void DeviceLedger::Started(int64_t at_ns, const wire::WaitTimes& waits,
                           bool fills_bubble) {
  // The one before was given up on the way: it computed until this wait began.
  if (computing_) AccountComputing(Advance(at_ns - Sum(waits)));
  backfilled_ns_ = 0;
  AccountWaiting(at_ns);
  GiveCauses(waits);
  computing_ = true;
  fills_bubble_ = fills_bubble;
}

void DeviceLedger::Computed(int64_t at_ns, const wire::WaitTimes& waits) {
  const int64_t span = Advance(at_ns);
  const int64_t unused = Sum(Cut(waits, span));
  const int64_t filled =
      std::min(unused, std::exchange(backfilled_ns_, int64_t{0}));
  const wire::WaitTimes known = Cut(waits, unused - filled);
  AccountComputing(span - unused);
  total_.compute_ns += filled;
  total_.filled_bubble_ns += filled;
  total_.bubble_ns += unused - filled;
  for (int c = 0; c < wire::kWaitCauses; ++c) {
    total_.bubble_causes_ns[c] += known[c];
  }
}

void DeviceLedger::Ended(int64_t at_ns, const wire::WaitTimes& waits) {
  Computed(at_ns, waits);
  computing_ = fills_bubble_ = false;
}

// A slot that is computed says later what it waited for.
void DeviceLedger::Backfilled(int64_t began_ns, int64_t ended_ns,
                              bool fills_bubble) {
  if (computing_) {
    backfilled_ns_ +=
        std::max<int64_t>(0, ended_ns - std::max(began_ns, accounted_ns_));
    return;
  }
  AccountWaiting(began_ns);
  const int64_t ns = Advance(ended_ns);
  total_.compute_ns += ns;
  if (fills_bubble) total_.filled_bubble_ns += ns;
}

void DeviceLedger::GaveUp(int64_t now_ns) {
  if (computing_) AccountComputing(Advance(now_ns));
  computing_ = fills_bubble_ = false;
  backfilled_ns_ = 0;
}

void DeviceLedger::PassTime(int64_t now_ns) {
  if (!computing_) AccountWaiting(now_ns);
}

DeviceTimes DeviceLedger::TakeNew(int64_t now_ns) {
  PassTime(now_ns);
  const DeviceTimes fresh = Minus(total_, taken_);
  taken_ = total_;
  samples_.push_back({now_ns, total_});
  if (samples_.size() > kMaxSamples) samples_.pop_front();
  return fresh;
}

DeviceTimes DeviceLedger::Window(int64_t window_ns) const {
  if (samples_.empty()) return {};
  const Sample& last = samples_.back();
  const auto first = std::find_if(
      samples_.begin(), samples_.end(),
      [&](const Sample& s) { return s.at_ns >= last.at_ns - window_ns; });
  return Minus(last.total, first->total);
}

double DeviceLedger::BubbleRatio(int64_t window_ns) const {
  const DeviceTimes times = Window(window_ns);
  const auto compute = static_cast<double>(times.compute_ns);
  const auto bubble = static_cast<double>(times.bubble_ns);
  return compute + bubble > 0 ? bubble / (compute + bubble) : 0;
}

}  // namespace roundhouse
