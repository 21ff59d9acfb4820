#include "worker/sample/sample_uploads.h"

#include <utility>

#include "base/status.h"
#include "worker/board/unit_weights.h"

namespace roundhouse::worker {

SampleUploads::~SampleUploads() {
  sample_.abandoned.store(true);
  board_.AwaitSampleCopies();
}

absl::Status SampleUploads::Start(std::atomic<bool>& there, DeviceBuffer& to,
                                  const std::byte* from, uint64_t bytes,
                                  CopyPriority priority,
                                  wire::Purpose purpose) {
  CopyRequest request;
  request.priority = priority;
  request.purpose = purpose;
  request.to = to.data();
  request.from = from;
  request.bytes = bytes;
  request.stats = &sample_.stats;
  request.abandoned = &sample_.abandoned;
  request.done = [&board = board_, &there](absl::Status status) {
    board.EndSampleCopy(there, std::move(status));
  };
  board_.BeginSampleCopy();
  absl::Status queued = queue_.Enqueue(std::move(request));
  if (!queued.ok()) board_.TakeBackSampleCopy();
  return queued;
}

absl::Status SampleUploads::CopyRows(const std::byte* from, uint64_t bytes,
                                     DeviceBuffer& to) {
  std::atomic<bool> there{false};
  RETURN_IF_ERROR(Start(there, to, from, bytes, CopyPriority::kActivation,
                        wire::Purpose::kActivations));
  absl::Status arrived = board_.AwaitSampleCopy(there);
  if (arrived.ok()) return arrived;
  // The copy knows `there` and the caller's bytes.
  sample_.abandoned.store(true);
  board_.AwaitSampleCopies();
  return arrived;
}

absl::Status SampleUploads::StartLayer(size_t layer) {
  const std::vector<uint32_t>& indices = sample_.plan.layer_units[layer];
  const auto [at, is_new] = layers_.try_emplace(layer, indices.size());
  if (!is_new) return absl::OkStatus();
  for (size_t i = 0; i < indices.size(); ++i) {
    const wire::BufferRef& weights = sample_.command.units[indices[i]].weights;
    Unit& unit = at->second[i];
    ASSIGN_OR_RETURN(unit.buffer,
                     device_.Allocate(weights.bytes, "a unit's weights"));
    RETURN_IF_ERROR(Start(unit.there, *unit.buffer, arena_.Bytes(weights),
                          weights.bytes, CopyPriority::kBulk,
                          wire::Purpose::kWeights));
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerWeights> SampleUploads::AwaitLayer(size_t layer) {
  const std::vector<uint32_t>& indices = sample_.plan.layer_units[layer];
  const Units& units = layers_.at(layer);
  LayerWeights weights;
  for (size_t i = 0; i < indices.size(); ++i) {
    RETURN_IF_ERROR(board_.AwaitSampleCopy(units[i].there));
    AddUnitWeights(*sample_.tables, sample_.command.units[indices[i]].unit,
                   static_cast<int64_t>(layer), units[i].buffer->data(),
                   &weights);
  }
  return weights;
}

}  // namespace roundhouse::worker
