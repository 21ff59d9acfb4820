#include "scheduler/estimate/host_bytes.h"

#include <algorithm>
#include <limits>

#include "scheduler/dispatch/sent_work.h"

namespace roundhouse {

RowGradient RowGradientOf(const TrainingSetup& setup) {
  return setup.method == TrainingMethod::kFull ? RowGradient::kRead
                                               : RowGradient::kUnread;
}

int64_t BoundaryBytes(const TrainingSetup& setup) {
  return 2 * setup.micro_batch_tokens() * setup.shape.hidden_size;
}

namespace {

// Bytes of a micro-batch's picks and of its experts' loads, in two rounds.
int64_t PicksOf(const TrainingSetup& setup) {
  constexpr int64_t kRounds = 2;
  const ModelShape& shape = setup.shape;
  if (!shape.mixture()) return 0;
  const auto dense = static_cast<int64_t>(shape.dense_layers.count());
  const int64_t layers = shape.layer_count - dense;
  const uint64_t bytes =
      PickBytes(layers, setup.micro_batch_tokens(), shape.experts_per_token) +
      LoadBytes(layers, shape.expert_count);
  return kRounds * static_cast<int64_t>(bytes);
}

}  // namespace

int64_t BlockByBlockTensors(const TrainingSetup& setup) {
  Plan plan = BlockByBlock(static_cast<int>(setup.shape.layer_count));
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const int every : SavedEveryTried(setup.saved_every)) {
    plan.saving.every = every;
    least = std::min(
        least, BoundaryTensors(plan, RowGradientOf(setup), kLeastSlotsAhead));
  }
  return least;
}

ContributionBlocks LeastBlocks(const TrainingSetup& setup, int device_count) {
  const Plan plan = BlockByBlock(static_cast<int>(setup.shape.layer_count));
  return BlocksOf(plan, 1, MostSlotsAhead(device_count));
}

HostMemory HostBytesOf(const TrainingSetup& setup, int64_t tensors,
                       int64_t round_micro_batches,
                       const ContributionBlocks& blocks, int64_t rounds) {
  HostMemory bytes;
  const int64_t trained = TrainedParameters(setup);
  const int64_t contribution_bytes =
      ContributionsOf(setup) == Contributions::kFp32 ? kFp32ContributionBytes
                                                     : kFastContributionBytes;
  if (setup.method == TrainingMethod::kFull) {
    bytes.state = kFullStateBytes * trained;
    const ModelShape& shape = setup.shape;
    // A tied head's sums are also of the embedding.
    const int64_t head = shape.tie_word_embeddings
                             ? shape.embedding_parameters() + shape.hidden_size
                             : shape.head_parameters();
    bytes.contributions =
        contribution_bytes *
        (blocks.layers * shape.most_layer_parameters() + blocks.head * head);
  } else {
    bytes.base = kFrozenBytes * setup.shape.parameter_count();
    bytes.state = kAdapterStateBytes * trained;
    bytes.contributions =
        contribution_bytes * blocks.layers * AdapterParameters(setup);
  }
  if (!setup.clips && rounds == 1) {
    const bool full = setup.method == TrainingMethod::kFull;
    bytes.state -=
        kSumBytes * (trained - (full ? setup.shape.embedding_parameters() : 0));
  }
  bytes.boundaries =
      round_micro_batches * (tensors * BoundaryBytes(setup) + PicksOf(setup));
  return bytes;
}

}  // namespace roundhouse
