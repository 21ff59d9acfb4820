#include "server/usage/usage_book.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/saturating_add.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr double kMib = 1 << 20;

}  // namespace

UsageBook::UsageBook(EventLoop& loop, JobStore& store)
    : loop_(loop),
      store_(store),
      ticked_ns_(loop.clock().MonotonicNs()),
      flushed_ns_(ticked_ns_),
      background_(loop) {}

UsageAmount UsageBook::Used::amount() const {
  constexpr double kMost = 9e18;
  return {device_ns, std::llround(std::min(host_mib_seconds, kMost))};
}

absl::Status UsageBook::Load() {
  ASSIGN_OR_RETURN(part_, NextUsagePart(store_));
  const int64_t now = HourOf(loop_.clock().WallTime());
  RETURN_IF_ERROR(
      ReadUsage(store_, 0, [&](const UsageKey& key, const UsageAmount& amount) {
        // Nothing is newer than now, whatever the clock said then.
        recent_.Add({key.project, key.user}, std::min(key.hour, now),
                    amount.device_ns);
      }));
  recent_.GoTo(now);
  return absl::OkStatus();
}

UsageBook::Used& UsageBook::Now(const JobOwner& owner,
                                std::optional<JobId> job) {
  const int64_t hour = HourOf(loop_.clock().WallTime());
  // The clock was set back: rows of that hour may be written and forgotten.
  if (hour < hour_) ++part_;
  hour_ = hour;
  return used_[{.hour = hour,
                .job = job.has_value() ? static_cast<int64_t>(Number(*job)) : 0,
                .project = owner.project,
                .user = owner.user,
                .part = part_}];
}

void UsageBook::AddDevice(const DeviceCharge& charge) {
  // What workers say is not checked.
  int64_t& used_ns = Now(charge.owner, charge.job).device_ns;
  used_ns = SaturatingAdd(used_ns, charge.device_ns);
  recent_.Add(charge.owner, hour_, std::max<int64_t>(0, charge.device_ns));
}

bool UsageBook::Tick(const std::vector<HostHolder>& holders) {
  const int64_t now_ns = loop_.clock().MonotonicNs();
  const double seconds = absl::ToDoubleSeconds(
      absl::Nanoseconds(now_ns - std::exchange(ticked_ns_, now_ns)));
  for (const HostHolder& holder : holders) {
    if (holder.bytes == 0) continue;
    Now(holder.owner, holder.job).host_mib_seconds +=
        static_cast<double>(holder.bytes) / kMib * seconds;
  }
  if (now_ns - flushed_ns_ >= absl::ToInt64Nanoseconds(kUsageInterval)) {
    flushed_ns_ = now_ns;
    Flush();
  }
  return recent_.GoTo(HourOf(loop_.clock().WallTime()));
}

void UsageBook::Flush() {
  if (background_.busy()) {
    flush_again_ = true;
    return;
  }
  UsageRows rows;
  for (const auto& [key, used] : used_) {
    if (used.written != used.amount()) rows[key] = used.amount();
  }
  if (rows.empty()) return;
  const bool drop = std::exchange(dropped_hour_, hour_) != hour_;
  background_.Run(
      [&store = store_, rows, drop, hour = hour_]() -> absl::Status {
        RETURN_IF_ERROR(WriteUsage(store, rows));
        return drop ? DropOldUsage(store, hour) : absl::OkStatus();
      },
      [this, rows](const absl::Status& status) { OnWritten(rows, status); });
}

void UsageBook::OnWritten(const UsageRows& rows, const absl::Status& status) {
  if (status.ok()) {
    for (const auto& [key, amount] : rows) used_[key].written = amount;
  } else {
    RH_LOG(kWarning) << "what jobs used is not written, and is tried again: "
                     << status.message();
  }
  Forget();
  if (std::exchange(flush_again_, false)) Flush();
}

void UsageBook::Forget() {
  std::erase_if(used_, [this](const auto& entry) {
    const auto& [key, used] = entry;
    const bool over = key.hour != hour_ || key.part != part_;
    return over && used.written == used.amount();
  });
  if (used_.size() <= kMaxWaitingUsage) return;
  RH_LOG(kError) << "what jobs used in the hour " << used_.begin()->first.hour
                 << " since the epoch was never written, and is not counted";
  while (used_.size() > kMaxWaitingUsage) used_.erase(used_.begin());
}

}  // namespace roundhouse
