#include "scheduler/plan/published_planner.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/byte_text.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// What each layer adds to a stage of one direction.
struct Load {
  std::vector<int64_t> time_ns;
  std::vector<int64_t> bytes;

  int layer_count() const { return static_cast<int>(time_ns.size()); }
};

struct StageLimit {
  int64_t time_ns = 0;
  int64_t bytes = 0;
};

// The sums of the stage that is being packed.
class OpenStage {
 public:
  OpenStage(const Load& load, const StageLimit& limit)
      : load_(load), limit_(limit) {}

  // Adds `layer` if the stage stays within the limit.  Layers are checked to
  // fit alone, so after Restart it always does.
  bool Add(int layer) {
    const int64_t time_ns = time_ns_ + load_.time_ns[layer];
    const int64_t bytes = bytes_ + load_.bytes[layer];
    if (time_ns > limit_.time_ns || bytes > limit_.bytes) {
      return false;
    }
    time_ns_ = time_ns;
    bytes_ = bytes;
    return true;
  }

  void Restart(int layer) {
    time_ns_ = load_.time_ns[layer];
    bytes_ = load_.bytes[layer];
  }

 private:
  const Load& load_;
  const StageLimit limit_;
  int64_t time_ns_ = 0;
  int64_t bytes_ = 0;
};

// Layers 0..end-1 packed from the back; ascending.
std::vector<LayerRange> PackForward(const Load& load, const StageLimit& limit,
                                    int end) {
  std::vector<LayerRange> stages;
  OpenStage stage(load, limit);
  for (int layer = end - 1; layer >= 0; --layer) {
    if (!stages.empty() && stage.Add(layer)) {
      stages.back().first = layer;
    } else {
      stage.Restart(layer);
      stages.push_back({layer, layer});
    }
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

// Layers 0..end-1 packed from the front; descending.
std::vector<LayerRange> PackBackward(const Load& load, const StageLimit& limit,
                                     int end) {
  std::vector<LayerRange> stages;
  OpenStage stage(load, limit);
  for (int layer = 0; layer < end; ++layer) {
    if (!stages.empty() && stage.Add(layer)) {
      stages.back().last = layer;
    } else {
      stage.Restart(layer);
      stages.push_back({layer, layer});
    }
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

LayerRange FusedStage(const Load& load, const StageLimit& limit) {
  OpenStage stage(load, limit);
  int first = load.layer_count();
  while (first > 0 && stage.Add(first - 1)) {
    --first;
  }
  return {first, load.layer_count() - 1};
}

Plan PackUnder(const Load& forward, const Load& backward,
               const StageLimit& limit, PlanKind kind) {
  Plan plan;
  int end = forward.layer_count();
  if (kind == PlanKind::kFusedTraining) {
    plan.fused = true;
    plan.backward.push_back(FusedStage(backward, limit));
    end = plan.backward[0].first;
  }
  plan.forward = PackForward(forward, limit, end);
  if (kind != PlanKind::kInference) {
    for (const LayerRange& stage : PackBackward(backward, limit, end)) {
      plan.backward.push_back(stage);
    }
  }
  return plan;
}

// Appends every contiguous sum of `time_ns` within [least, most].
void AddCaps(const std::vector<int64_t>& time_ns, int64_t least, int64_t most,
             std::vector<int64_t>* caps) {
  for (size_t first = 0; first < time_ns.size(); ++first) {
    int64_t sum = 0;
    for (size_t last = first; last < time_ns.size(); ++last) {
      sum += time_ns[last];
      if (sum > most) {
        break;
      }
      if (sum >= least) {
        caps->push_back(sum);
      }
    }
  }
}

std::vector<int64_t> CandidateCaps(const Load& forward, const Load& backward,
                                   int64_t longest_ns, int threshold_percent) {
  const int64_t most = longest_ns * threshold_percent / 100;
  std::vector<int64_t> caps;
  AddCaps(forward.time_ns, longest_ns, most, &caps);
  AddCaps(backward.time_ns, longest_ns, most, &caps);
  std::sort(caps.begin(), caps.end());
  caps.erase(std::unique(caps.begin(), caps.end()), caps.end());
  return caps;
}

int64_t Longest(const Load& load) {
  return load.time_ns.empty()
             ? 0
             : *std::max_element(load.time_ns.begin(), load.time_ns.end());
}

Load ForwardLoad(const std::vector<LayerCost>& layers) {
  Load load;
  for (const LayerCost& layer : layers) {
    load.time_ns.push_back(absl::ToInt64Nanoseconds(layer.forward_time));
    load.bytes.push_back(layer.parameter_bytes);
  }
  return load;
}

Load BackwardLoad(const std::vector<LayerCost>& layers) {
  Load load;
  for (const LayerCost& layer : layers) {
    load.time_ns.push_back(absl::ToInt64Nanoseconds(layer.backward_time));
    load.bytes.push_back(layer.parameter_bytes + layer.trainable_bytes);
  }
  return load;
}

absl::Status CheckTime(size_t layer, const char* field, absl::Duration time) {
  if (time < absl::ZeroDuration() || time > kMaxLayerTime) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", layer, ": ", field, " is ", absl::FormatDuration(time),
        ": expected 0 to ", absl::FormatDuration(kMaxLayerTime)));
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(size_t layer, const char* field, int64_t bytes) {
  // Small enough for the sum over kMaxPlanLayers layers of two such fields.
  constexpr int64_t kMost =
      std::numeric_limits<int64_t>::max() / (2 * kMaxPlanLayers);
  if (bytes < 0 || bytes > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("layer ", layer, ": ", field,
                                                   " is ", bytes,
                                                   ": expected 0 to ", kMost));
  }
  return absl::OkStatus();
}

// REQUIRES: bytes >= 0.
std::string Text(int64_t bytes) {
  return ByteText(static_cast<uint64_t>(bytes));
}

absl::Status CheckFits(size_t index, const LayerCost& layer,
                       const PlannerOptions& options) {
  const bool trains = options.kind != PlanKind::kInference;
  const int64_t gradient_bytes = trains ? layer.trainable_bytes : 0;
  const int64_t needed = layer.parameter_bytes + gradient_bytes;
  const int64_t limit = StageLimitBytes(options.device_memory_bytes);
  if (needed > limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "layer ", index, " needs ", Text(needed), " of device memory (",
        Text(layer.parameter_bytes), " of parameters, ", Text(gradient_bytes),
        " of gradients): a stage may hold ", Text(limit), " on a device of ",
        Text(options.device_memory_bytes)));
  }
  return absl::OkStatus();
}

absl::Status CheckLayer(size_t index, const LayerCost& layer,
                        const PlannerOptions& options) {
  RETURN_IF_ERROR(CheckTime(index, "forward_time", layer.forward_time));
  if (options.kind != PlanKind::kInference) {
    RETURN_IF_ERROR(CheckTime(index, "backward_time", layer.backward_time));
  }
  RETURN_IF_ERROR(CheckBytes(index, "parameter_bytes", layer.parameter_bytes));
  RETURN_IF_ERROR(CheckBytes(index, "trainable_bytes", layer.trainable_bytes));
  return CheckFits(index, layer, options);
}

absl::Status OutOfRange(const char* name, int64_t value, int64_t least,
                        int64_t most) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ": expected ", least, " to ", most));
}

absl::Status CheckArguments(const std::vector<LayerCost>& layers,
                            const PlannerOptions& options) {
  if (layers.empty() || layers.size() > kMaxPlanLayers) {
    return OutOfRange("the number of layers", layers.size(), 1, kMaxPlanLayers);
  }
  if (options.device_count < 1 || options.device_count > kMaxPlanDevices) {
    return OutOfRange("device_count", options.device_count, 1, kMaxPlanDevices);
  }
  if (options.device_memory_bytes < 0) {
    return OutOfRange("device_memory_bytes", options.device_memory_bytes, 0,
                      std::numeric_limits<int64_t>::max());
  }
  if (options.upper_threshold_percent < 100 ||
      options.upper_threshold_percent > 200) {
    return OutOfRange("upper_threshold_percent",
                      options.upper_threshold_percent, 100, 200);
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    RETURN_IF_ERROR(CheckLayer(i, layers[i], options));
  }
  return absl::OkStatus();
}

int64_t StageCount(const Plan& plan) {
  return static_cast<int64_t>(plan.forward.size() + plan.backward.size());
}

}  // namespace

int64_t StageLimitBytes(int64_t device_memory_bytes) {
  // 3/10 without overflow: of the whole tens, and of what is left.
  return device_memory_bytes / 10 * 3 + device_memory_bytes % 10 * 3 / 10;
}

absl::StatusOr<Plan> PublishedPlan(const std::vector<LayerCost>& layers,
                                   const PlannerOptions& options) {
  RETURN_IF_ERROR(CheckArguments(layers, options));
  const bool trains = options.kind != PlanKind::kInference;
  const Load forward = ForwardLoad(layers);
  const Load backward = trains ? BackwardLoad(layers) : Load();
  const int64_t longest_ns = std::max(Longest(forward), Longest(backward));
  if (longest_ns == 0) {
    return absl::InvalidArgumentError(
        "no layer takes a nanosecond: there is nothing to balance");
  }
  const int64_t limit_bytes = StageLimitBytes(options.device_memory_bytes);
  const int64_t devices = options.device_count;
  std::optional<Plan> best;
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (const int64_t cap_ns : CandidateCaps(forward, backward, longest_ns,
                                            options.upper_threshold_percent)) {
    // Later caps are larger: none can be strictly cheaper any more.
    if (devices * cap_ns >= best_cost) {
      break;
    }
    Plan plan =
        PackUnder(forward, backward, {cap_ns, limit_bytes}, options.kind);
    const int64_t cost = std::max(StageCount(plan), devices) * cap_ns;
    if (cost < best_cost) {
      best_cost = cost;
      best = std::move(plan);
    }
  }
  // The longest layer alone is a candidate, so there is always a plan.
  return *std::move(best);
}

}  // namespace roundhouse
