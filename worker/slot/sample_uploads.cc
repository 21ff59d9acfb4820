#include "worker/slot/sample_uploads.h"

#include <utility>

#include "base/status.h"
#include "worker/slot/unit_weights.h"

namespace roundhouse::worker {

SampleUploads::~SampleUploads() {
  sample_.abandoned.store(true);
  board_.WaitUntil([this] { return sample_.copies_in_flight == 0; });
}

absl::Status SampleUploads::Start(Upload& upload, DeviceBuffer& to,
                                  const std::byte* from, uint64_t bytes,
                                  CopyPriority priority,
                                  wire::Purpose purpose) {
  upload = {Arrival::kCopying, &to};
  CopyRequest request;
  request.priority = priority;
  request.purpose = purpose;
  request.to = to.data();
  request.from = from;
  request.bytes = bytes;
  request.stats = &sample_.stats;
  request.abandoned = &sample_.abandoned;
  request.done = [&board = board_, &sample = sample_,
                  &upload](absl::Status status) {
    board.Update([&] {
      if (status.ok()) {
        upload.arrival = Arrival::kThere;
      } else if (sample.copy_failure.ok()) {
        sample.copy_failure = std::move(status);
      }
      --sample.copies_in_flight;
    });
  };
  board_.Update([&] { ++sample_.copies_in_flight; });
  absl::Status queued = queue_.Enqueue(std::move(request));
  if (!queued.ok()) board_.Update([&] { --sample_.copies_in_flight; });
  return queued;
}

absl::Status SampleUploads::Await(const Upload& upload) {
  absl::Status failure;
  board_.WaitUntil([&] {
    failure = board_.stopping() ? absl::CancelledError("the worker stops")
                                : sample_.copy_failure;
    return !failure.ok() || upload.arrival == Arrival::kThere;
  });
  return failure;
}

absl::Status SampleUploads::CopyRows(const std::byte* from, uint64_t bytes,
                                     DeviceBuffer& to) {
  Upload upload;
  RETURN_IF_ERROR(Start(upload, to, from, bytes, CopyPriority::kActivation,
                        wire::Purpose::kActivations));
  absl::Status arrived = Await(upload);
  if (arrived.ok()) return arrived;
  // The copy knows `upload` and the caller's bytes.
  sample_.abandoned.store(true);
  board_.WaitUntil([this] { return sample_.copies_in_flight == 0; });
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
    RETURN_IF_ERROR(Start(unit.upload, *unit.buffer, arena_.Bytes(weights),
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
    RETURN_IF_ERROR(Await(units[i].upload));
    AddUnitWeights(*sample_.tables, sample_.command.units[indices[i]].unit,
                   static_cast<int64_t>(layer), units[i].buffer->data(),
                   &weights);
  }
  return weights;
}

}  // namespace roundhouse::worker
