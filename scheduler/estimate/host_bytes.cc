#include "scheduler/estimate/host_bytes.h"

#include <set>

#include "scheduler/dispatch/sent_work.h"

namespace roundhouse {

int64_t BoundaryTensors(const Plan& stages, bool input_gradient) {
  std::set<int> inputs = {0};
  int64_t gradients = 0;
  for (const LayerRange& stage : stages.forward) inputs.insert(stage.first);
  for (const LayerRange& stage : stages.backward) {
    inputs.insert(stage.first);
    gradients += stage.first > 0 || input_gradient ? 1 : 0;
  }
  return static_cast<int64_t>(inputs.size()) + gradients;
}

int64_t MostBoundaryTensors(const TrainingSetup& setup) {
  const int64_t layers = setup.shape.layer_count + 1;
  return 2 * layers - (setup.method == TrainingMethod::kFull ? 0 : 1);
}

ContributionBlocks LeastBlocks(const TrainingSetup& setup, int device_count) {
  const Plan plan = BlockByBlock(static_cast<int>(setup.shape.layer_count));
  return BlocksOf(plan, 1, DispatcherOptions().max_job_slots * device_count);
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
        (blocks.layers * shape.layer_parameters + blocks.head * head);
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
  const int64_t tensor =
      2 * setup.micro_batch_tokens() * setup.shape.hidden_size;
  bytes.boundaries = kBoundarySets * round_micro_batches * tensors * tensor;
  return bytes;
}

}  // namespace roundhouse
