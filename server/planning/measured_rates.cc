#include "server/planning/measured_rates.h"

#include <algorithm>
#include <numeric>

#include "scheduler/simulate/host_work.h"

namespace roundhouse {
namespace {

int64_t BytesOf(const RunHostOpAction& action, int64_t elements,
                DType contributions) {
  const int64_t sums = static_cast<int64_t>(action.blocks.size()) *
                       static_cast<int64_t>(DTypeBytes(contributions));
  constexpr int64_t kTotal = sizeof(float);
  if (action.kind == HostOpKind::kUpdate) {
    // In one pass the total is neither written nor read.
    return elements * (sums > 0 ? sums + kOnePassBytesPerParameter
                                : kUpdateBytesPerParameter);
  }
  if (action.kind != HostOpKind::kReduce || sums == 0) return 0;
  return elements * (sums + (action.add_to_sum ? 2 : 1) * kTotal);
}

}  // namespace

void MeasuredRates::ObserveSlot(const wire::SlotDone& done) {
  const int64_t busy_ns[] = {done.h2d_ns, done.d2h_ns};
  static_assert(static_cast<int>(wire::Direction::kH2D) == 0);
  for (int d = 0; d < wire::kDirections; ++d) {
    const uint64_t bytes = std::accumulate(std::begin(done.bytes[d]),
                                           std::end(done.bytes[d]), uint64_t{});
    if (bytes < kLeastBytes || busy_ns[d] <= 0) continue;
    fastest_[d] = std::max(fastest_[d], static_cast<double>(bytes) /
                                            static_cast<double>(busy_ns[d]));
  }
}

void MeasuredRates::ObserveHostOp(const RunHostOpAction& action,
                                  int64_t elements, DType contributions,
                                  int64_t ns) {
  const int64_t bytes = BytesOf(action, elements, contributions);
  if (bytes < static_cast<int64_t>(kLeastBytes) || ns <= 0) return;
  host_bytes_ += static_cast<double>(bytes);
  host_ns_ += static_cast<double>(ns);
}

void MeasuredRates::Apply(Machine& machine) const {
  const double slower = *std::min_element(fastest_.begin(), fastest_.end());
  if (slower > 0) machine.link_rate = slower;
  if (host_ns_ > 0) machine.host_work_rate = host_bytes_ / host_ns_;
}

}  // namespace roundhouse
