#include "worker/slot/slot_feeder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/kill_point.h"
#include "worker/clock.h"
#include "worker/slot/lost_device.h"

namespace roundhouse::worker {

void SlotFeeder::Run() {
  while (!board_.stopping()) {
    pulse_.Beat();
    held_.MakeRoom(MonotonicNow());
    if (Step()) continue;
    wire::WaitForRing(
        doorbell_, refused_ ? SlotBoard::kAskAgainEvery : Heartbeats::kMaxWait,
        [this] { return SomethingToDo(); });
  }
}

bool SlotFeeder::SomethingToDo() const {
  return board_.rung() || board_.stopping() ||
         std::any_of(awaited_.begin(), awaited_.end(),
                     [this](const wire::WordRef& word) {
                       return wire::Reached(arena_.WordAt(word.offset),
                                            word.value);
                     }) ||
         std::any_of(attempts_.begin(), attempts_.end(),
                     [this](uint64_t attempt) {
                       return wire::Cancelled(doorbell_, attempt);
                     });
}

bool SlotFeeder::Step() {
  board_.TakeRing();
  awaited_.clear();
  attempts_.clear();
  {
    std::lock_guard<std::mutex> lock(board_.mutex);
    MarkWithdrawals();
    FeedSlots();
    CollectEnded();
    refused_ = board_.AnyRefusedLately();
  }
  const bool again = gave_up_ || !raises_.empty() || !ended_.empty();
  // Whoever computes or waits for a slot given up must look.
  if (std::exchange(gave_up_, false)) board_.Update([] {});
  EnqueueCopies();
  RaiseWords();
  TellSums();
  EndSlots();
  return again;
}

void SlotFeeder::MarkWithdrawals() {
  for (const auto& slot : board_.slots) {
    if (!slot->withdrawn && wire::Cancelled(doorbell_, slot->attempt)) {
      slot->withdrawn = true;
      slot->Abandon();
      gave_up_ = true;
    }
    if (!slot->withdrawn) attempts_.push_back(slot->attempt);
  }
}

// The slots that drain, the one that computes, the next, and the first of every
// other job once it could overtake.
void SlotFeeder::FeedSlots() {
  int ahead = 0;
  std::vector<uint64_t> jobs;
  for (const auto& slot : board_.slots) {
    if (slot->abandoned) continue;
    CollectRaises(*slot);
    CollectSums(*slot);
    if (slot->phase == ComputePhase::kComputed) continue;
    const bool computes = slot->phase == ComputePhase::kComputing;
    const uint64_t job = slot->command.job;
    const bool first_of_job =
        std::find(jobs.begin(), jobs.end(), job) == jobs.end();
    if (first_of_job && !computes) {
      LookAtWords(*slot);
      jobs.push_back(job);
    }
    const bool next = ++ahead <= 2;
    if (!computes && !next && !(first_of_job && slot->published)) continue;
    FeedInputs(*slot);
    FeedGradients(*slot);
    FeedWeights(*slot);
  }
}

void SlotFeeder::LookAtWords(SlotState& slot) {
  if (slot.published) return;
  for (const wire::SlotUnit& unit : slot.command.units) {
    if (Awaited(unit.version)) return;
  }
  for (const wire::SlotMicroBatch& micro_batch : slot.command.micro_batches) {
    if (Awaited(micro_batch.input_ready)) return;
    if (Awaited(micro_batch.gradient_ready)) return;
  }
  slot.published = true;
}

bool SlotFeeder::Awaited(const wire::WordRef& word) {
  if (word.offset == 0) return false;
  if (wire::Reached(arena_.WordAt(word.offset), word.value)) return false;
  awaited_.push_back(word);
  return true;
}

bool SlotFeeder::Published(const wire::WordRef& word, Publication& noted) {
  if (Awaited(word)) {
    noted.awaited = true;
    return false;
  }
  if (noted.awaited && noted.reached_ns == 0) noted.reached_ns = MonotonicNow();
  return true;
}

void SlotFeeder::Fail(SlotState& slot, absl::Status why) {
  slot.Fail(std::move(why));
  gave_up_ = true;
}

bool SlotFeeder::TakeBuffer(SlotState& slot, BufferPool& pool,
                            DeviceBuffer** buffer) {
  absl::StatusOr<DeviceBuffer*> taken = board_.TryTake(slot, pool);
  if (!taken.ok()) {
    Fail(slot, std::move(taken).status());
    return false;
  }
  *buffer = *taken;
  return *buffer != nullptr;
}

void SlotFeeder::StartUpload(SlotState& slot, Upload& upload,
                             DeviceBuffer* buffer, const wire::BufferRef& from,
                             CopyPriority priority, wire::Purpose purpose,
                             CopyPlace place) {
  upload.arrival = Arrival::kCopying;
  upload.buffer = buffer;
  upload.granted_ns = MonotonicNow();
  ++slot.copies_in_flight;
  CopyRequest request;
  request.priority = priority;
  request.purpose = purpose;
  request.to = buffer->data();
  request.from = arena_.Bytes(from);
  request.bytes = from.bytes;
  request.stats = &slot.stats;
  request.place = place;
  request.abandoned = &slot.abandoned;
  request.done = [this, &slot, &upload](absl::Status status) {
    board_.Update([&] {
      --slot.copies_in_flight;
      if (status.ok()) {
        upload.arrival = Arrival::kThere;
        upload.there_ns = MonotonicNow();
      } else if (!slot.abandoned) {
        slot.Fail(std::move(status));
      }
    });
  };
  copies_.push_back({&slot, std::move(request)});
}

void SlotFeeder::FeedWeights(SlotState& slot) {
  for (size_t u = 0; u < slot.weights.size(); ++u) {
    const wire::SlotUnit& unit = slot.command.units[u];
    if (slot.weights[u].arrival != Arrival::kAbsent) continue;
    if (!Published(unit.version, slot.weights[u].published)) continue;
    auto buffer = board_.TryTakeWeights(slot, unit.weights.bytes);
    if (!buffer.ok()) return Fail(slot, std::move(buffer).status());
    slot.weights[u].refused |= *buffer == nullptr;
    if (*buffer == nullptr) return;
    StartUpload(slot, slot.weights[u], *buffer, unit.weights,
                CopyPriority::kBulk, wire::Purpose::kWeights,
                {.layer = unit.layer});
  }
}

bool SlotFeeder::MayUploadTurn(const SlotState& slot, size_t m) {
  return m == 0 || slot.FirstWeightsThere();
}

void SlotFeeder::FeedInputs(SlotState& slot) {
  for (size_t& m = slot.next_input; m < slot.uploads.size(); ++m) {
    const wire::SlotMicroBatch& given = slot.command.micro_batches[m];
    const auto micro_batch = static_cast<int32_t>(given.index);
    MicroBatchUploads& uploads = slot.uploads[m];
    if (m == 0) Published(slot.command.gather_begun, slot.gather_begun);
    if (!MayUploadTurn(slot, m)) return;
    if (!Published(given.input_ready, uploads.input.published)) return;
    DeviceBuffer* input = nullptr;
    if (!TakeBuffer(slot, slot.inputs, &input)) {
      uploads.input.refused = true;
      return;
    }
    StartUpload(slot, uploads.input, input, given.input,
                CopyPriority::kActivation, wire::Purpose::kActivations,
                {slot.command.first_layer, micro_batch});
  }
}

void SlotFeeder::FeedGradients(SlotState& slot) {
  if (slot.command.kind != wire::SlotKind::kBackward) return;
  for (size_t& m = slot.next_gradient; m < slot.uploads.size(); ++m) {
    const wire::SlotMicroBatch& given = slot.command.micro_batches[m];
    Upload& upload = slot.uploads[m].gradient;
    if (!MayUploadTurn(slot, m)) return;
    if (!Published(given.gradient_ready, upload.published)) return;
    DeviceBuffer* gradient = nullptr;
    if (!TakeBuffer(slot, slot.gradients, &gradient)) {
      upload.refused = true;
      return;
    }
    StartUpload(slot, upload, gradient, given.gradient,
                CopyPriority::kActivation, wire::Purpose::kActivations,
                {slot.command.last_layer, static_cast<int32_t>(given.index)});
  }
}

void SlotFeeder::CollectRaises(SlotState& slot) {
  for (size_t o = 0; o < slot.outputs.size(); ++o) {
    if (slot.outputs[o] == OutputState::kCopied) raises_.push_back({&slot, o});
  }
}

// Where its end is next, that says it of all.
void SlotFeeder::CollectSums(SlotState& slot) {
  if (slot.sums_down.empty() || slot.Down()) return;
  sums_.push_back({slot.attempt,
                   {.slot = slot.command.slot,
                    .time_ns = MonotonicNow(),
                    .units = std::exchange(slot.sums_down, {})}});
}

void SlotFeeder::CollectEnded() {
  for (auto at = board_.slots.begin(); at != board_.slots.end();) {
    SlotState& slot = **at;
    const bool given_up = slot.abandoned &&
                          slot.phase != ComputePhase::kComputing &&
                          slot.copies_in_flight == 0;
    const bool raising = std::any_of(
        raises_.begin(), raises_.end(),
        [&](const PendingRaise& raise) { return raise.slot == &slot; });
    if (raising || !(slot.Finished() || given_up)) {
      ++at;
      continue;
    }
    slot.ReleaseAll();
    ended_.push_back(std::move(*at));
    at = board_.slots.erase(at);
  }
}

void SlotFeeder::EnqueueCopies() {
  for (Copy& copy : copies_) {
    absl::Status status = uploads_.Enqueue(std::move(copy.request));
    if (status.ok()) continue;
    board_.Update([&] {
      --copy.slot->copies_in_flight;
      copy.slot->Fail(std::move(status));
    });
  }
  copies_.clear();
}

void SlotFeeder::RaiseWords() {
  for (const PendingRaise& raise : raises_) {
    SlotState& slot = *raise.slot;
    if (board_.GivenUp(slot)) continue;
    const wire::WordRef& word = slot.command.outputs[raise.output].raise;
    if (word.offset != 0) {
      wire::Raise(arena_.WordAt(word.offset), word.value, arena_.doorbells());
    }
    KillPoint("slot.output.raised");
    std::lock_guard<std::mutex> lock(board_.mutex);
    slot.outputs[raise.output] = OutputState::kSettled;
  }
  raises_.clear();
}

void SlotFeeder::TellSums() {
  for (PendingSums& told : sums_) {
    outbox_.Send(told.attempt, std::move(told.sums));
    KillPoint("slot.sums.told");
  }
  sums_.clear();
}

void SlotFeeder::EndSlots() {
  if (ended_.empty()) return;
  board_.Update([] {});  // memory is free again
  for (const auto& slot : ended_) EndSlot(*slot);
  ended_.clear();
}

void SlotFeeder::EndSlot(const SlotState& slot) {
  if (slot.Finished()) {
    KillPoint("slot.done.before");
    outbox_.Send(slot.attempt, slot.Done(MonotonicNow(), device_.TakePeak()));
    KillPoint("slot.done.after");
  } else if (!slot.failure.ok()) {
    EndProcessIfLost(slot.failure);
    if (slot.command.again == 0) EndProcessIfExhausted(slot.failure);
    outbox_.Send(slot.attempt,
                 wire::FailedWith(slot.command.slot, slot.failure));
  } else {
    outbox_.Send(slot.attempt, wire::Withdrawn{slot.command.slot});
  }
}

}  // namespace roundhouse::worker
