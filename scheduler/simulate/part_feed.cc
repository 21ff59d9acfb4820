#include "scheduler/simulate/part_feed.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "scheduler/simulate/device_memory.h"

namespace roundhouse {

void PartFeed::DeviceLost(int device) {
  ROUNDHOUSE_CHECK(false) << "device " << device << ": no feed for losses";
}

EarliestFinishFeed::EarliestFinishFeed(const std::vector<Part>& parts,
                                       const ModelCosts& costs,
                                       const Machine& machine, int most_sent)
    : parts_(parts),
      machine_(machine),
      most_sent_(most_sent),
      devices_(machine.devices.size()) {
  ROUNDHOUSE_CHECK(most_sent >= 1);
  part_ns_.reserve(parts.size());
  part_bytes_.reserve(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    // Most parts of a slot are like the one before.
    const bool same =
        i > 0 && parts[i - 1].slot == part.slot &&
        parts[i - 1].micro_batches.size() == part.micro_batches.size() &&
        parts[i - 1].groups == part.groups &&
        parts[i - 1].contributions == part.contributions;
    part_ns_.push_back(same ? part_ns_.back()
                            : static_cast<double>(PartNs(part, costs)));
    part_bytes_.push_back(same ? part_bytes_.back()
                               : PartPeakBytes(part, costs));
  }
}

double EarliestFinishFeed::FinishNs(int device, int part) const {
  return devices_[device].work_ns +
         part_ns_[part] / machine_.devices[device].speed;
}

int EarliestFinishFeed::EarliestFinish(int part) const {
  const int slot = parts_[part].slot;
  const int64_t bytes = part_bytes_[part];
  const double ns = part_ns_[part];
  const SimulatedDevice* traits = machine_.devices.data();
  int best = -1;
  bool best_is_small = false;
  double best_ns = 0;
  double speed = 0;
  double takes_ns = 0;
  int d = -1;
  for (const Device& device : devices_) {
    ++d;
    if (device.slot == slot) continue;
    if (traits[d].speed != speed) {  // Mostly all devices' is the same.
      speed = traits[d].speed;
      takes_ns = ns / speed;
    }
    const bool is_small = traits[d].memory_bytes < bytes;
    const double end_ns = device.work_ns + takes_ns;
    // Too small a device last.
    if (best >= 0 && (is_small != best_is_small ? is_small : end_ns >= best_ns))
      continue;
    best = d;
    best_is_small = is_small;
    best_ns = end_ns;
  }
  ROUNDHOUSE_CHECK(best >= 0) << "slot " << slot << " has too many parts";
  return best;
}

std::vector<PartFeed::Sent> EarliestFinishFeed::TakeSent() {
  std::vector<Sent> sent;
  if (blocked_on_ >= 0 && devices_[blocked_on_].sent == most_sent_) return sent;
  blocked_on_ = -1;
  if (device_of_.empty()) {
    device_of_.reserve(parts_.size());
    sent.reserve(parts_.size());
  }
  while (device_of_.size() < parts_.size()) {
    const int part = static_cast<int>(device_of_.size());
    const int d = EarliestFinish(part);
    Device& device = devices_[d];
    if (device.sent == most_sent_) {
      blocked_on_ = d;
      break;
    }
    device.work_ns = FinishNs(d, part);
    ++device.sent;
    device.slot = parts_[part].slot;
    device_of_.push_back(d);
    sent.push_back({part, d});
  }
  return sent;
}

void EarliestFinishFeed::Computed(int part) {
  --devices_[device_of_.at(part)].sent;
}

RingFeed::RingFeed(int part_count, int device_count, int most_sent)
    : part_count_(part_count), most_sent_(most_sent), sent_(device_count) {
  ROUNDHOUSE_CHECK(device_count >= 1 && most_sent >= 1);
}

std::vector<PartFeed::Sent> RingFeed::TakeSent() {
  const int devices = static_cast<int>(sent_.size());
  std::vector<Sent> sent;
  for (; next_ < part_count_; ++next_) {
    const int d = next_ % devices;
    if (sent_[d] == most_sent_) break;
    ++sent_[d];
    sent.push_back({next_, d});
  }
  return sent;
}

void RingFeed::Computed(int part) {
  --sent_[part % static_cast<int>(sent_.size())];
}

std::vector<int> AssignDevices(const std::vector<Part>& parts,
                               const ModelCosts& costs,
                               const Machine& machine) {
  const int all = std::max(1, static_cast<int>(parts.size()));
  EarliestFinishFeed feed(parts, costs, machine, all);
  feed.TakeSent();
  return feed.devices();
}

}  // namespace roundhouse
