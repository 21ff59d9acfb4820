#include "scheduler/dispatch/sent_work.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.h"

namespace roundhouse {
namespace {

// The weight that an earlier slot keeps in the measured speed at each later
// slot. Micro-batches of shorter and longer rows average out over some 200
// slots.
constexpr double kKept = 0.995;
// Devices this much faster or slower than all together differ, until they are
// as near again; others are equal ones whose times vary.
constexpr double kDifferent = 1.2;
constexpr double kSameAgain = 1.1;
// A device that gets no slot cannot show that it is fast again: after so many
// elsewhere nothing is known of it.
constexpr int kForgottenAfter = 1000;

// The work left in slots of this class and the ones before.
double WorkLeft(const std::vector<SentWork::SentSlot>& slots, int rank) {
  double work = 0;
  for (const SentWork::SentSlot& slot : slots) {
    if (PriorityRank(slot.priority) <= rank) work += slot.device_ns;
  }
  return work;
}

}  // namespace

SentWork::SentWork(const DispatcherOptions& options) : options_(options) {
  ROUNDHOUSE_CHECK(options.max_job_slots >= 1 &&
                   options.max_device_slots >= options.max_job_slots &&
                   options.max_backfill_slots >= 1 &&
                   options.max_host_ops >= 1);
}

std::vector<SentWork::SentSlot> SentWork::DeviceUp(DeviceId device,
                                                   const DeviceTraits& traits) {
  Device& state = devices_[device];
  ROUNDHOUSE_CHECK(!state.up) << "device " << Number(device) << " is up";
  ROUNDHOUSE_CHECK(traits.speed > 0) << traits.speed;
  state.up = true;
  state.leaving = false;
  state.traits = traits;
  MeasureSpeeds();  // its times are still those of the same hardware
  return state.slots;
}

void SentWork::DeviceDown(DeviceId device) {
  Device& state = devices_.at(device);
  ROUNDHOUSE_CHECK(state.up) << "device " << Number(device) << " is down";
  state.up = false;
}

bool SentWork::DeviceLost(DeviceId device) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return false;
  ROUNDHOUSE_CHECK(!found->second.up);
  devices_.erase(found);
  return true;
}

void SentWork::Leave(DeviceId device) {
  const auto found = devices_.find(device);
  if (found != devices_.end()) found->second.leaving = true;
}

void SentWork::Stay(DeviceId device) {
  const auto found = devices_.find(device);
  if (found != devices_.end()) found->second.leaving = false;
}

bool SentWork::HasSlots(DeviceId device) const {
  const auto found = devices_.find(device);
  return found != devices_.end() && !found->second.slots.empty();
}

const std::vector<SentWork::SentSlot>& SentWork::Slots(DeviceId device) const {
  return devices_.at(device).slots;
}

double SentWork::Speed(DeviceId device) const {
  const auto found = devices_.find(device);
  return found == devices_.end() ? 1 : found->second.speed;
}

std::vector<double> SentWork::Speeds() const {
  std::vector<double> speeds;
  for (const auto& [id, device] : devices_) speeds.push_back(device.speed);
  return speeds;
}

bool SentWork::HasPartBefore(const Device& device, const SentSlot& slot) {
  const auto last = device.last_parts.find(slot.job);
  return last != device.last_parts.end() && last->second == slot.first_part;
}

bool SentWork::Full(const Device& device, const SentSlot& slot) const {
  const auto count = [&device](const auto& of) {
    return static_cast<int>(
        std::count_if(device.slots.begin(), device.slots.end(), of));
  };
  const auto of_class = [&count](Priority priority) {
    return count(
        [priority](const SentSlot& sent) { return sent.priority == priority; });
  };
  if (count([&slot](const SentSlot& sent) { return sent.job == slot.job; }) >=
      options_.max_job_slots) {
    return true;
  }
  if (slot.priority == Priority::kBackfill) {
    return of_class(Priority::kBackfill) >= options_.max_backfill_slots;
  }
  const int urgent = of_class(Priority::kUrgent);
  const int normal = of_class(Priority::kNormal);
  const int most = options_.max_device_slots + options_.more_urgent_slots;
  if (urgent + normal >= most) return true;
  // Each leave room for one of the others.
  return slot.priority == Priority::kUrgent
             ? urgent >= most - 1
             : normal >= options_.max_device_slots;
}

// Where some differ, devices of about one speed have one, of all their times
// together: noise between them would break their ring, and an error of theirs
// against slower ones, which no clock here corrects, would give those more and
// more to do.
void SentWork::MeasureSpeeds() {
  std::vector<Device*> measured;
  Times all;
  for (auto& [id, device] : devices_) {
    device.speed = device.traits.speed;
    if (device.times.taken_ns <= 0 || device.times.expected_ns <= 0) continue;
    measured.push_back(&device);
    all.Add(device.times);
  }
  bool equal = true;
  for (Device* device : measured) {
    const double relative = device->times.Speed() / all.Speed();
    const double most = device->differs ? kSameAgain : kDifferent;
    device->differs = relative > most || relative * most < 1;
    equal = equal && !device->differs;
  }
  if (equal) return;
  std::sort(measured.begin(), measured.end(),
            [](const Device* a, const Device* b) {
              return a->times.Speed() < b->times.Speed();
            });
  for (auto first = measured.begin(); first != measured.end();) {
    const double most = kDifferent * (*first)->times.Speed();
    const auto end = std::find_if(
        first, measured.end(),
        [most](const Device* device) { return device->times.Speed() > most; });
    Times same;
    std::for_each(first, end,
                  [&same](const Device* one) { same.Add(one->times); });
    for (; first != end; ++first) {
      (*first)->speed *= same.Speed() / all.Speed();
    }
  }
}

std::optional<DeviceId> SentWork::Place(const SentSlot& slot) const {
  const int c = PriorityRank(slot.priority);
  using Rank = std::tuple<bool, bool, double, double, uint64_t>;
  std::optional<std::pair<Rank, DeviceId>> best;
  for (const auto& [device, state] : devices_) {
    if (!state.up || state.leaving) continue;
    const Rank rank = {HasPartBefore(state, slot),
                       state.traits.memory_bytes < slot.device_bytes,
                       FreeNs(state, c) + slot.ns / state.speed,
                       state.free_ns[c], slot.wide ? 0 : state.last_sent};
    if (!best.has_value() || rank < best->first) best = {rank, device};
  }
  if (!best.has_value() || Full(devices_.at(best->second), slot)) {
    return std::nullopt;
  }
  return best->second;
}

void SentWork::Add(DeviceId device, const SentSlot& slot) {
  Device& state = devices_.at(device);
  SentSlot sent = slot;
  sent.device_ns = slot.ns / state.speed;
  for (int c = PriorityRank(slot.priority); c < kPriorityCount; ++c) {
    state.free_ns[c] = FreeNs(state, c) + sent.device_ns;
  }
  state.slots.push_back(sent);
  state.last_sent = ++sent_count_;
  state.last_parts[slot.job] = slot.first_part;
}

std::vector<SentWork::SentSlot> SentWork::PutForward(
    JobId job, Priority to, const std::function<uint64_t()>& next_turn) {
  std::vector<SentSlot> changed;
  for (auto& [id, state] : devices_) {
    for (SentSlot& slot : state.slots) {
      if (slot.job != job || slot.priority >= to ||
          slot.priority == Priority::kBackfill) {
        continue;
      }
      for (int c = PriorityRank(to); c < PriorityRank(slot.priority); ++c) {
        state.free_ns[c] = FreeNs(state, c) + slot.device_ns;
      }
      slot.priority = to;
      slot.turn = next_turn();
      changed.push_back(slot);
    }
  }
  return changed;
}

double SentWork::NsOf(JobId job, double ns_per_guess) const {
  double ns = 0;
  for (const auto& [device, state] : devices_) {
    for (const SentSlot& slot : state.slots) {
      if (slot.job != job) continue;
      ns +=
          slot.cost.guessed ? slot.cost.amount * ns_per_guess : slot.device_ns;
    }
  }
  return ns;
}

std::optional<SentWork::SentSlot> SentWork::Take(Device& device, SlotId slot) {
  const auto found =
      std::find_if(device.slots.begin(), device.slots.end(),
                   [&](const SentSlot& sent) { return sent.slot == slot; });
  if (found == device.slots.end()) return std::nullopt;
  const SentSlot taken = *found;
  device.slots.erase(found);
  return taken;
}

void SentWork::Done(DeviceId device, SlotId slot, int64_t compute_ns) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return;  // lost
  Device& state = found->second;
  const std::optional<SentSlot> done = Take(state, slot);
  if (!done.has_value()) return;
  if (!done->cost.guessed) {
    for (auto& [id, other] : devices_) {
      if (other.slots_elsewhere < kForgottenAfter &&
          ++other.slots_elsewhere == kForgottenAfter) {
        other.times = {};
      }
    }
    state.slots_elsewhere = 0;
    state.times.taken_ns =
        kKept * state.times.taken_ns + static_cast<double>(compute_ns);
    state.times.expected_ns =
        kKept * state.times.expected_ns + done->ns / state.traits.speed;
    MeasureSpeeds();
  }
  for (int c = PriorityRank(done->priority); c < kPriorityCount; ++c) {
    const double left_ns = WorkLeft(state.slots, c);
    now_ns_[c] = std::max(now_ns_[c], state.free_ns[c] - left_ns);
    // Time that it had nothing to do is gone; a device that is late beside
    // others is not taken for slow, for all of a step's devices wait now and
    // then.
    if (left_ns == 0) state.free_ns[c] = now_ns_[c];
  }
}

void SentWork::Remove(DeviceId device, SlotId slot) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return;  // lost
  const std::optional<SentSlot> removed = Take(found->second, slot);
  if (!removed.has_value()) return;
  for (int c = PriorityRank(removed->priority); c < kPriorityCount; ++c) {
    found->second.free_ns[c] -= removed->device_ns;
  }
}

void SentWork::DropJob(JobId job) {
  for (const auto& [device, state] : devices_) {
    for (const SentSlot& slot : state.slots) {
      ROUNDHOUSE_CHECK(slot.job != job)
          << "slot " << Number(slot.slot) << " is with " << Number(device);
    }
  }
  for (auto& [device, state] : devices_) state.last_parts.erase(job);
  std::erase_if(host_ops_,
                [&](const SentHostOp& op) { return op.action.job == job; });
}

std::vector<RunHostOpAction> SentWork::HostUp() {
  ROUNDHOUSE_CHECK(!host_up_);
  host_up_ = true;
  std::vector<RunHostOpAction> again;
  for (SentHostOp& op : host_ops_) {
    op.out = true;
    again.push_back(op.action);
  }
  return again;
}

void SentWork::HostDown() {
  host_up_ = false;
  for (SentHostOp& op : host_ops_) op.out = false;
}

bool SentWork::MaySendHostOp() const {
  return host_up_ && static_cast<int>(host_ops_.size()) < options_.max_host_ops;
}

void SentWork::AddHostOp(const RunHostOpAction& action) {
  host_ops_.push_back({action, true});
}

std::optional<RunHostOpAction> SentWork::HostOpDone(HostOpId op) {
  const auto found = std::find_if(
      host_ops_.begin(), host_ops_.end(),
      [&](const SentHostOp& sent) { return sent.action.op == op; });
  if (found == host_ops_.end() || !found->out) return std::nullopt;
  const RunHostOpAction action = found->action;
  host_ops_.erase(found);
  return action;
}

}  // namespace roundhouse
