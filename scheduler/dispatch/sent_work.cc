#include "scheduler/dispatch/sent_work.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.h"

namespace roundhouse {
namespace {

double WorkLeft(const std::vector<SentWork::SentSlot>& slots) {
  double work = 0;
  for (const SentWork::SentSlot& slot : slots) work += slot.cost;
  return work;
}

bool HasPartOf(const std::vector<SentWork::SentSlot>& slots,
               SlotId first_part) {
  return std::any_of(slots.begin(), slots.end(),
                     [&](const SentWork::SentSlot& slot) {
                       return slot.first_part == first_part;
                     });
}

}  // namespace

SentWork::SentWork(const DispatcherOptions& options) : options_(options) {
  ROUNDHOUSE_CHECK(options.max_job_slots >= 1 &&
                   options.max_device_slots >= options.max_job_slots &&
                   options.max_host_ops >= 1);
}

std::vector<SentWork::SentSlot> SentWork::DeviceUp(DeviceId device) {
  Device& state = devices_[device];
  ROUNDHOUSE_CHECK(!state.up) << "device " << Number(device) << " is up";
  state.up = true;
  return state.slots;
}

void SentWork::DeviceDown(DeviceId device) {
  Device& state = devices_.at(device);
  ROUNDHOUSE_CHECK(state.up) << "device " << Number(device) << " is down";
  state.up = false;
}

std::vector<SentWork::SentSlot> SentWork::DeviceLost(DeviceId device) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return {};
  ROUNDHOUSE_CHECK(!found->second.up);
  std::vector<SentSlot> slots = std::move(found->second.slots);
  devices_.erase(found);
  return slots;
}

const std::vector<SentWork::SentSlot>& SentWork::Slots(DeviceId device) const {
  return devices_.at(device).slots;
}

bool SentWork::Full(const Device& device, JobId job) const {
  const auto of_job =
      std::count_if(device.slots.begin(), device.slots.end(),
                    [&](const SentSlot& slot) { return slot.job == job; });
  return of_job >= options_.max_job_slots ||
         static_cast<int>(device.slots.size()) >= options_.max_device_slots;
}

std::optional<DeviceId> SentWork::Place(const SentSlot& slot) const {
  using Rank = std::tuple<bool, double, uint64_t>;
  std::optional<std::pair<Rank, DeviceId>> best;
  for (const auto& [device, state] : devices_) {
    if (!state.up) continue;
    const Rank rank = {HasPartOf(state.slots, slot.first_part),
                       WorkLeft(state.slots), state.last_sent};
    if (!best.has_value() || rank < best->first) best = {rank, device};
  }
  if (!best.has_value() || Full(devices_.at(best->second), slot.job)) {
    return std::nullopt;
  }
  return best->second;
}

void SentWork::Add(DeviceId device, const SentSlot& slot) {
  Device& state = devices_.at(device);
  state.slots.push_back(slot);
  state.last_sent = ++sent_count_;
}

double SentWork::CostOf(JobId job) const {
  double cost = 0;
  for (const auto& [device, state] : devices_) {
    for (const SentSlot& slot : state.slots) {
      if (slot.job == job) cost += slot.cost;
    }
  }
  return cost;
}

void SentWork::Remove(DeviceId device, SlotId slot) {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return;  // lost
  std::erase_if(found->second.slots,
                [&](const SentSlot& sent) { return sent.slot == slot; });
}

void SentWork::DropJob(JobId job) {
  for (const auto& [device, state] : devices_) {
    for (const SentSlot& slot : state.slots) {
      ROUNDHOUSE_CHECK(slot.job != job)
          << "slot " << Number(slot.slot) << " is with " << Number(device);
    }
  }
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
