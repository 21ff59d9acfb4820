#include "scheduler/estimate/update_delay.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/simulate/host_work.h"

namespace roundhouse {
namespace {

// How long each layer's update takes: the embedding's with layer 0's, the
// head's last.
std::vector<int64_t> UpdateNs(const TrainingSetup& setup, double host_rate) {
  const ModelShape& shape = setup.shape;
  const auto ns = [host_rate](int64_t parameters) {
    return std::llround(static_cast<double>(parameters * kUpdateBytes) /
                        host_rate);
  };
  const bool full = setup.method == TrainingMethod::kFull;
  std::vector<int64_t> updates;
  for (int64_t layer = 0; layer < shape.layer_count; ++layer) {
    updates.push_back(
        ns(full ? shape.LayerParameters(layer) : AdapterParameters(setup)));
  }
  if (!full) return updates;
  updates.front() += ns(shape.embedding_parameters());
  updates.push_back(shape.tie_word_embeddings ? ns(shape.hidden_size)
                                              : ns(shape.head_parameters()));
  return updates;
}

LayerRange StageWith(const std::vector<LayerRange>& stages, int layer) {
  return *std::find_if(stages.begin(), stages.end(),
                       [layer](const LayerRange& stage) {
                         return stage.first <= layer && layer <= stage.last;
                       });
}

// By layer; of kEmbedding that of layer 0's first input.
std::map<int, int64_t> FirstUploads(const Schedule& round) {
  std::map<int, int64_t> first;
  for (const Interval& interval : round.intervals) {
    const bool rows = interval.kind == WorkKind::kActivations &&
                      interval.layer_begin == 0 &&
                      interval.direction == PassDirection::kForward;
    if (interval.kind != WorkKind::kWeights && !rows) continue;
    const auto [at, added] = first.emplace(
        rows ? kEmbedding : interval.layer_begin, interval.start_ns);
    if (!added) at->second = std::min(at->second, interval.start_ns);
  }
  return first;
}

}  // namespace

int64_t UpdateDelayNs(const Schedule& round, const Plan& stages,
                      const TrainingSetup& setup, double host_rate) {
  std::map<int, int64_t> first_upload = FirstUploads(round);
  const int64_t end_ns = round.MakespanNs();
  const std::vector<int64_t> updates = UpdateNs(setup, host_rate);
  // When each may begin, and in this order: without clipping once its slots'
  // sums are all down and it is reduced.
  std::vector<std::pair<int64_t, size_t>> begins;
  for (size_t layer = 0; layer < updates.size(); ++layer) {
    begins.emplace_back(setup.clips ? end_ns : 0, layer);
  }
  for (const Interval& interval : round.intervals) {
    if (setup.clips || interval.layer_begin < 0) continue;
    LayerRange layers = {interval.layer_begin, interval.layer_begin};
    if (interval.kind == WorkKind::kGradients) {
      layers = StageWith(stages.backward, interval.layer_begin);
    } else if (interval.kind != WorkKind::kReduce) {
      continue;
    }
    for (size_t layer = layers.first;
         layer < begins.size() && layer <= static_cast<size_t>(layers.last);
         ++layer) {
      begins[layer].first = std::max(begins[layer].first, interval.end_ns);
    }
  }
  std::sort(begins.begin(), begins.end());
  int64_t updated_ns = 0;
  int64_t delay_ns = 0;
  for (const auto& [begin_ns, layer] : begins) {
    updated_ns = std::max(updated_ns, begin_ns) + updates[layer];
    delay_ns = std::max(
        delay_ns, updated_ns - end_ns - first_upload[static_cast<int>(layer)]);
  }
  return delay_ns;
}

}  // namespace roundhouse
