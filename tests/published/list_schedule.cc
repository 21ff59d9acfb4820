#include "tests/published/list_schedule.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace roundhouse {
namespace {

int64_t Length(const std::vector<ListSchedule::Piece>& pieces) {
  int64_t length = 0;
  for (const auto& piece : pieces) length += piece.length_ns;
  return length;
}

}  // namespace

ListSchedule::ListSchedule(int device_count, int op_count, int64_t hop_ns)
    : hop_ns_(hop_ns), ops_(op_count), placed_(op_count) {
  ROUNDHOUSE_CHECK(device_count >= 1 && op_count >= 1 && hop_ns >= 0);
  devices_.resize(device_count);
  schedule_.device_count = device_count;
}

void ListSchedule::Append(int device, OpId id, Op op) {
  ROUNDHOUSE_CHECK(ops_.at(id).main.empty() && !op.main.empty()) << id;
  ops_[id] = std::move(op);
  devices_.at(device).ops.push_back(id);
}

bool ListSchedule::Ready(const Op& op) const {
  return std::all_of(op.after.begin(), op.after.end(),
                     [this](OpId id) { return placed_.at(id).device >= 0; });
}

void ListSchedule::Run() {
  bool progress = true;
  while (progress) {
    progress = false;
    for (int d = 0; d < static_cast<int>(devices_.size()); ++d) {
      Device& device = devices_[d];
      while (device.next < device.ops.size() &&
             Ready(ops_[device.ops[device.next]])) {
        Place(d, device.ops[device.next++]);
        progress = true;
      }
    }
  }
  for (const Device& device : devices_) {
    ROUNDHOUSE_CHECK(device.next == device.ops.size()) << "deadlock";
  }
}

void ListSchedule::Place(int device, OpId id) {
  const Op& op = ops_[id];
  const int64_t prelude_ns = Length(op.prelude);
  int64_t start_ns = devices_[device].free_ns + prelude_ns;
  for (const OpId before : op.after) {
    const int64_t hop_ns = placed_[before].device == device ? 0 : hop_ns_;
    start_ns = std::max(start_ns, placed_[before].end_ns + hop_ns);
  }
  Emit(device, op, op.prelude, start_ns - prelude_ns);
  const int64_t end_ns = Emit(device, op, op.main, start_ns);
  placed_[id] = {device, end_ns};
  devices_[device].free_ns = end_ns;
}

int64_t ListSchedule::Emit(int device, const Op& op,
                           const std::vector<Piece>& pieces, int64_t start_ns) {
  for (const Piece& piece : pieces) {
    Interval interval;
    interval.resource = {ResourceType::kCompute, device};
    interval.kind = piece.kind;
    interval.direction = op.direction;
    interval.layer_begin = piece.layer_begin;
    interval.layer_end = piece.layer_end;
    interval.micro_batch = op.micro_batch;
    interval.start_ns = start_ns;
    interval.end_ns = start_ns + piece.length_ns;
    start_ns = interval.end_ns;
    // A stage without layers takes part in the order, but does nothing.
    if (piece.layer_end > piece.layer_begin) {
      schedule_.intervals.push_back(interval);
    }
  }
  return start_ns;
}

int ListSchedule::FirstFreeDevice() const {
  const auto first = std::min_element(
      devices_.begin(), devices_.end(),
      [](const Device& a, const Device& b) { return a.free_ns < b.free_ns; });
  return static_cast<int>(first - devices_.begin());
}

}  // namespace roundhouse
