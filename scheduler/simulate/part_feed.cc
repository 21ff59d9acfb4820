#include "scheduler/simulate/part_feed.h"

#include <limits>
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
      equal_devices_(machine.equal_devices()),
      devices_(machine.devices.size()) {
  ROUNDHOUSE_CHECK(most_sent >= 1);
  part_ns_.reserve(parts.size());
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
    if (equal_devices_) continue;
    part_bytes_.push_back(same ? part_bytes_.back()
                               : PartPeakBytes(part, costs));
  }
}

int EarliestFinishFeed::EarliestFinish(int part, int slot) {
  if (!equal_devices_) return EarliestOfUnequal(part, slot);
  const double takes_ns = part_ns_[part] / machine_.devices[0].speed;
  int best = -1;
  double best_ns = std::numeric_limits<double>::infinity();
  int d = -1;
  for (const Device& device : devices_) {
    ++d;
    const double end_ns = device.work_ns + takes_ns;
    if (device.slot == slot || end_ns >= best_ns) continue;
    best = d;
    best_ns = end_ns;
  }
  ROUNDHOUSE_CHECK(best >= 0) << "slot " << slot << " has too many parts";
  return best;
}

int EarliestFinishFeed::EarliestOfUnequal(int part, int slot) {
  MeasureOnEach(part);
  int best = -1;
  bool best_too_small = true;
  double best_ns = std::numeric_limits<double>::infinity();
  for (int d = 0; d < static_cast<int>(devices_.size()); ++d) {
    const Device& device = devices_[d];
    if (device.slot == slot) continue;
    const auto& [too_small, takes_ns] = on_each_[d];
    const double end_ns = device.work_ns + takes_ns;
    // Too small a device last.
    if (too_small != best_too_small ? too_small : end_ns >= best_ns) continue;
    best = d;
    best_too_small = too_small;
    best_ns = end_ns;
  }
  ROUNDHOUSE_CHECK(best >= 0) << "slot " << slot << " has too many parts";
  return best;
}

void EarliestFinishFeed::MeasureOnEach(int part) {
  const bool same = measured_ >= 0 && part_ns_[part] == part_ns_[measured_] &&
                    part_bytes_[part] == part_bytes_[measured_];
  measured_ = part;
  if (same) return;
  on_each_.clear();
  for (const SimulatedDevice& device : machine_.devices) {
    on_each_.push_back({device.memory_bytes < part_bytes_[part],
                        part_ns_[part] / device.speed});
  }
}

void EarliestFinishFeed::Give(int device, int part, int slot) {
  devices_[device].work_ns += part_ns_[part] / machine_.devices[device].speed;
  devices_[device].slot = slot;
}

std::vector<int> EarliestFinishFeed::AssignAll(int rounds) {
  const int slots = parts_.empty() ? 0 : parts_.back().slot + 1;
  std::vector<int> devices;
  devices.reserve(parts_.size() * rounds);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int slot = round * slots + parts_[i].slot;
      devices.push_back(EarliestFinish(static_cast<int>(i), slot));
      Give(devices.back(), static_cast<int>(i), slot);
    }
  }
  return devices;
}

std::vector<PartFeed::Sent> EarliestFinishFeed::TakeSent() {
  std::vector<Sent> sent;
  if (blocked_on_ >= 0 && devices_[blocked_on_].sent == most_sent_) return sent;
  blocked_on_ = -1;
  while (device_of_.size() < parts_.size()) {
    const int part = static_cast<int>(device_of_.size());
    const int slot = parts_[part].slot;
    const int d = EarliestFinish(part, slot);
    Device& device = devices_[d];
    if (device.sent == most_sent_) {
      blocked_on_ = d;
      break;
    }
    Give(d, part, slot);
    ++device.sent;
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
                               const ModelCosts& costs, const Machine& machine,
                               int rounds) {
  return EarliestFinishFeed(parts, costs, machine, 1).AssignAll(rounds);
}

}  // namespace roundhouse
