#include "worker/board/upload_feed.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/wire/words.h"

namespace roundhouse::worker {

Upload& UploadOf(SlotState& slot, const UploadName& name) {
  switch (name.kind) {
    case UploadName::Kind::kInput:
      break;
    case UploadName::Kind::kGradient:
      return slot.uploads[name.index].gradient;
    case UploadName::Kind::kWeights:
      return slot.weights[name.index];
  }
  return slot.uploads[name.index].input;
}

class UploadFeed::Pass {
 public:
  Pass(const UploadFeed& feed, SlotTable& table, FeedStep& step)
      : arena_(feed.arena_),
        doorbell_(feed.doorbell_),
        table_(table),
        step_(step) {}

  void MarkWithdrawals();
  void FeedSlots();
  void CollectEnded();

 private:
  // Marks it published when every word that it waits for is reached.
  void LookAtWords(SlotState& slot);
  void FeedWeights(SlotState& slot);
  // What the m-th micro-batch needs goes up behind the first layer's weights
  // where it cannot be computed before them: activations go before weights.
  static bool MayUploadTurn(const SlotState& slot, size_t m);
  void FeedInputs(SlotState& slot);
  void FeedGradients(SlotState& slot);
  bool Awaited(const wire::WordRef& word);  // true: not reached yet
  // Whether picks that the m-th micro-batch goes by are not there yet.
  bool AwaitsPicks(const SlotState& slot, size_t m);
  // Whether it is reached; notes when that was, if it was awaited.
  bool Published(const wire::WordRef& word, Publication& noted);
  bool TakeBuffer(SlotState& slot, BufferPool& pool, DeviceBuffer** buffer);
  void Begin(SlotState& slot, BegunUpload upload);
  void Fail(SlotState& slot, absl::Status why);
  void CollectRaises(SlotState& slot);
  void CollectSums(SlotState& slot);

  const wire::Arena& arena_;
  const wire::Doorbell& doorbell_;
  SlotTable& table_;
  FeedStep& step_;
};

void UploadFeed::Look(SlotTable& table, FeedStep& step) const {
  Pass pass(*this, table, step);
  pass.MarkWithdrawals();
  pass.FeedSlots();
  pass.CollectEnded();
  step.refused = table.AnyRefusedLately();
}

void UploadFeed::Pass::MarkWithdrawals() {
  for (const auto& slot : table_.slots()) {
    if (!slot->withdrawn && wire::Cancelled(doorbell_, slot->attempt)) {
      slot->Withdraw();
      step_.gave_up = true;
    }
    if (!slot->withdrawn) step_.attempts.push_back(slot->attempt);
  }
}

// The slots that drain, the one that computes, the next, and the first of every
// other job once it could overtake; of backfill jobs none before.
void UploadFeed::Pass::FeedSlots() {
  int ahead = 0;
  std::vector<uint64_t> jobs;
  for (const auto& slot : table_.slots()) {
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
    const bool next = !slot->backfill() && ++ahead <= 2;
    if (!computes && !next && !(first_of_job && slot->published)) continue;
    FeedInputs(*slot);
    FeedGradients(*slot);
    FeedWeights(*slot);
  }
}

void UploadFeed::Pass::LookAtWords(SlotState& slot) {
  if (slot.published) return;
  for (const wire::SlotUnit& unit : slot.command.units) {
    if (Awaited(unit.version)) return;
  }
  for (size_t m = 0; m < slot.command.micro_batches.size(); ++m) {
    const wire::SlotMicroBatch& micro_batch = slot.command.micro_batches[m];
    if (Awaited(micro_batch.input_ready)) return;
    if (AwaitsPicks(slot, m)) return;
    if (Awaited(micro_batch.gradient_ready)) return;
  }
  slot.published = true;
}

bool UploadFeed::Pass::AwaitsPicks(const SlotState& slot, size_t m) {
  if (slot.command.pick_use != wire::PickUse::kRead) return false;
  for (size_t layer = 0; layer < slot.plan.expert_layers.size(); ++layer) {
    const auto picks = slot.plan.PicksOf(slot.command.micro_batches[m],
                                         static_cast<int>(layer));
    if (picks.has_value() && Awaited(picks->word)) return true;
  }
  return false;
}

bool UploadFeed::Pass::Awaited(const wire::WordRef& word) {
  if (word.offset == 0) return false;
  if (wire::Reached(arena_.WordAt(word.offset), word.value)) return false;
  step_.awaited.push_back(word);
  return true;
}

bool UploadFeed::Pass::Published(const wire::WordRef& word,
                                 Publication& noted) {
  if (Awaited(word)) {
    noted.awaited = true;
    return false;
  }
  if (noted.awaited && noted.reached_ns == 0) noted.reached_ns = MonotonicNs();
  return true;
}

void UploadFeed::Pass::Fail(SlotState& slot, absl::Status why) {
  slot.Fail(std::move(why));
  step_.gave_up = true;
}

bool UploadFeed::Pass::TakeBuffer(SlotState& slot, BufferPool& pool,
                                  DeviceBuffer** buffer) {
  absl::StatusOr<DeviceBuffer*> taken = table_.TryTake(slot, pool);
  if (!taken.ok()) {
    Fail(slot, std::move(taken).status());
    return false;
  }
  *buffer = *taken;
  return *buffer != nullptr;
}

void UploadFeed::Pass::Begin(SlotState& slot, BegunUpload begun) {
  Upload& upload = UploadOf(slot, begun.name);
  upload.arrival = Arrival::kCopying;
  upload.buffer = begun.to;
  upload.granted_ns = MonotonicNs();
  ++slot.copies_in_flight;
  begun.slot = &slot;
  if (slot.backfill()) begun.priority = CopyPriority::kBackfill;
  step_.uploads.push_back(begun);
}

void UploadFeed::Pass::FeedWeights(SlotState& slot) {
  for (size_t u = 0; u < slot.weights.size(); ++u) {
    const wire::SlotUnit& unit = slot.command.units[u];
    if (slot.weights[u].arrival != Arrival::kAbsent) continue;
    if (!Published(unit.version, slot.weights[u].published)) continue;
    auto buffer = table_.TryTakeWeights(slot, unit.weights.bytes);
    if (!buffer.ok()) return Fail(slot, std::move(buffer).status());
    slot.weights[u].refused |= *buffer == nullptr;
    if (*buffer == nullptr) return;
    Begin(slot, {.name = {UploadName::Kind::kWeights, u},
                 .to = *buffer,
                 .from = unit.weights,
                 .priority = CopyPriority::kBulk,
                 .purpose = wire::Purpose::kWeights,
                 .place = {.layer = unit.layer}});
  }
}

bool UploadFeed::Pass::MayUploadTurn(const SlotState& slot, size_t m) {
  return m == 0 || slot.FirstWeightsThere();
}

void UploadFeed::Pass::FeedInputs(SlotState& slot) {
  for (size_t& m = slot.next_input; m < slot.uploads.size(); ++m) {
    const wire::SlotMicroBatch& given = slot.command.micro_batches[m];
    Upload& upload = slot.uploads[m].input;
    if (m == 0) Published(slot.command.gather_begun, slot.gather_begun);
    if (!MayUploadTurn(slot, m)) return;
    if (AwaitsPicks(slot, m)) {
      upload.published.awaited = true;
      return;
    }
    if (!Published(given.input_ready, upload.published)) return;
    DeviceBuffer* input = nullptr;
    if (!TakeBuffer(slot, slot.inputs, &input)) {
      upload.refused = true;
      return;
    }
    Begin(slot, {.name = {UploadName::Kind::kInput, m},
                 .to = input,
                 .from = given.input,
                 .place = {slot.command.first_layer,
                           static_cast<int32_t>(given.index)}});
  }
}

void UploadFeed::Pass::FeedGradients(SlotState& slot) {
  if (slot.command.kind != SlotKind::kBackward) return;
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
    Begin(slot, {.name = {UploadName::Kind::kGradient, m},
                 .to = gradient,
                 .from = given.gradient,
                 .place = {slot.command.last_layer,
                           static_cast<int32_t>(given.index)}});
  }
}

void UploadFeed::Pass::CollectRaises(SlotState& slot) {
  for (size_t o = 0; o < slot.outputs.size(); ++o) {
    if (slot.outputs[o] == OutputState::kCopied) {
      step_.raises.push_back({&slot, o});
    }
  }
}

// Skipped where SlotDone follows at once: it implies that all sums are down.
void UploadFeed::Pass::CollectSums(SlotState& slot) {
  if (slot.sums_down.empty() || slot.Down()) return;
  step_.sums.push_back({slot.attempt,
                        {.slot = slot.command.slot,
                         .time_ns = MonotonicNs(),
                         .units = std::exchange(slot.sums_down, {})}});
}

void UploadFeed::Pass::CollectEnded() {
  SlotTable::Slots& slots = table_.slots();
  for (auto at = slots.begin(); at != slots.end();) {
    SlotState& slot = **at;
    const bool raising = std::any_of(
        step_.raises.begin(), step_.raises.end(),
        [&](const FeedStep::Raise& raise) { return raise.slot == &slot; });
    if (raising || !(slot.Finished() || slot.CanBeDropped())) {
      ++at;
      continue;
    }
    slot.ReleaseAll();
    step_.ended.push_back(std::move(*at));
    at = slots.erase(at);
  }
}

}  // namespace roundhouse::worker
