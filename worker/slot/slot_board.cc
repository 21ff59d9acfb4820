#include "worker/slot/slot_board.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/clock.h"

namespace roundhouse::worker {

absl::Status SlotBoard::Add(std::unique_ptr<SlotState> slot) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (slots.size() >= wire::kMaxDispatchedSlots) {
      return absl::ResourceExhaustedError(
          absl::StrCat("slot ", slot->command.slot, ": ", slots.size(),
                       " slots are with this worker already"));
    }
    slots.push_back(std::move(slot));
  }
  changed_.notify_all();
  RingFeeder();
  return absl::OkStatus();
}

void SlotBoard::Withdraw(uint64_t attempt) {
  Update([&] {
    for (const auto& slot : slots) {
      if (slot->attempt != attempt) continue;
      slot->withdrawn = true;
      slot->Abandon();
    }
  });
}

void SlotBoard::Stop() {
  Update([&] { stopping_.store(true); });
}

SlotState* SlotBoard::FirstQueued() const {
  for (const auto& slot : slots) {
    if (slot->phase == ComputePhase::kQueued && !slot->abandoned) {
      return slot.get();
    }
  }
  return nullptr;
}

SlotState* SlotBoard::NextToCompute() {
  std::unique_lock<std::mutex> lock(mutex);
  SlotState* slot = nullptr;
  changed_.wait(lock, [&] {
    slot = FirstQueued();
    return stopping() || slot != nullptr;
  });
  if (stopping()) return nullptr;
  slot->phase = ComputePhase::kComputing;
  return slot;
}

absl::Status SlotBoard::Await(SlotState& slot,
                              const std::function<bool()>& ready,
                              int64_t* waited_ns) {
  std::unique_lock<std::mutex> lock(mutex);
  const auto over = [&] { return stopping() || slot.abandoned || ready(); };
  if (!over()) {
    const int64_t began_ns = MonotonicNow();
    changed_.wait(lock, over);
    *waited_ns += MonotonicNow() - began_ns;
  }
  if (stopping() || slot.abandoned) {
    return absl::CancelledError("the slot was given up");
  }
  return absl::OkStatus();
}

bool SlotBoard::GivenUp(SlotState& slot) {
  if (slot.abandoned || stopping()) return true;
  if (!wire::Cancelled(doorbell_, slot.attempt)) return false;
  Update([&] {
    slot.withdrawn = true;
    slot.Abandon();
  });
  return true;
}

void SlotBoard::Update(const std::function<void()>& change) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    change();
  }
  changed_.notify_all();
  RingFeeder();
}

void SlotBoard::RingFeeder() {
  rung_.store(true);
  wire::Ring(doorbell_);
}

bool SlotBoard::MayHold(const SlotState& slot, uint64_t bytes) const {
  uint64_t committed = slot.held_bytes + bytes;
  for (const auto& older : slots) {
    if (older.get() == &slot) break;
    committed += older->planned_bytes();
  }
  return committed <= device_.memory().limit_bytes;
}

absl::StatusOr<DeviceBuffer*> SlotBoard::TryTake(SlotState& slot,
                                                 BufferPool& pool,
                                                 bool* fresh) {
  if (fresh != nullptr) *fresh = false;
  if (!pool.free.empty()) {
    DeviceBuffer* const buffer = pool.free.back();
    pool.free.pop_back();
    return buffer;
  }
  const uint64_t cost = DeviceBytes(pool.need.bytes);
  if (pool.all.size() >= pool.need.count || !MayHold(slot, cost)) {
    return nullptr;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer,
                   device_.Allocate(pool.need.bytes, pool.what));
  slot.held_bytes += cost;
  if (fresh != nullptr) *fresh = true;
  pool.all.push_back(std::move(buffer));
  return pool.all.back().get();
}

absl::StatusOr<DeviceBuffer*> SlotBoard::TryTakeWeights(SlotState& slot,
                                                        uint64_t bytes) {
  const uint64_t cost = DeviceBytes(bytes);
  if (!MayHold(slot, cost)) return nullptr;
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer,
                   device_.Allocate(bytes, "a unit's weights"));
  slot.held_bytes += cost;
  slot.weight_buffers.push_back(std::move(buffer));
  return slot.weight_buffers.back().get();
}

}  // namespace roundhouse::worker
