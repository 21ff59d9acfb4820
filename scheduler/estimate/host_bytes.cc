#include "scheduler/estimate/host_bytes.h"

#include <algorithm>
#include <map>
#include <set>

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

HostMemory HostBytesOf(const TrainingSetup& setup, int64_t tensors,
                       int64_t round_micro_batches) {
  HostMemory bytes;
  const int64_t trained = TrainedParameters(setup);
  if (setup.method == TrainingMethod::kFull) {
    bytes.state = kFullStateBytes * trained;
  } else {
    bytes.base = kFrozenBytes * setup.shape.parameter_count();
    bytes.state = kAdapterStateBytes * trained;
  }
  const int64_t tensor =
      2 * setup.micro_batch_tokens() * setup.shape.hidden_size;
  bytes.boundaries = kBoundarySets * round_micro_batches * tensors * tensor;
  return bytes;
}

int64_t PeakContributionBytes(const Schedule& schedule) {
  std::map<int64_t, int64_t> change;  // at a time
  std::map<int, int64_t> of_layer;
  for (const Interval& interval : schedule.intervals) {
    if (interval.kind != WorkKind::kGradients) continue;
    change[interval.start_ns] += interval.bytes;
    of_layer[interval.layer_begin] += interval.bytes;
  }
  std::map<int, int64_t> reduced;  // a layer's end
  for (const Interval& interval : schedule.intervals) {
    if (interval.kind != WorkKind::kReduce) continue;
    int64_t& end = reduced[interval.layer_begin];
    end = std::max(end, interval.end_ns);
  }
  for (const auto& [layer, end] : reduced) change[end] -= of_layer[layer];
  int64_t held = 0;
  int64_t peak = 0;
  for (const auto& [time, bytes] : change) {
    held += bytes;
    peak = std::max(peak, held);
  }
  return peak;
}

}  // namespace roundhouse
