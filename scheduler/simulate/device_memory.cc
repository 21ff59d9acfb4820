#include "scheduler/simulate/device_memory.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace roundhouse {
namespace {

struct PartBytes {
  int64_t weights = 0;
  int64_t inner = 0;  // sums and activations while it runs
  int64_t down = 0;
};

// Per part.
std::vector<PartBytes> BytesOf(const std::vector<Part>& parts,
                               const ModelCosts& costs) {
  std::vector<PartBytes> bytes;
  bytes.reserve(parts.size());
  const Part* before = nullptr;
  for (const Part& part : parts) {
    // Most parts of a slot cover as many groups as the one before.
    const bool same = before != nullptr && before->kind == part.kind &&
                      before->layers == part.layers &&
                      before->groups == part.groups &&
                      before->contributions == part.contributions;
    before = &part;
    bytes.push_back(same ? bytes.back()
                         : PartBytes{PartWeightBytes(part, costs),
                                     PartSumBytes(part, costs) +
                                         PartActivationBytes(part, costs),
                                     PartDownBytes(part, costs)});
  }
  return bytes;
}

// The parts of each device, in order.
class Sequences {
 public:
  Sequences(const std::vector<int>& device_of, int device_count)
      : parts_(device_of.size()), ends_(device_count) {
    for (const int d : device_of) ++ends_[d];
    std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
    std::vector<int> next(ends_.size());
    for (size_t d = 1; d < next.size(); ++d) next[d] = ends_[d - 1];
    for (size_t i = 0; i < device_of.size(); ++i) {
      parts_[next[device_of[i]]++] = static_cast<int>(i);
    }
  }

  absl::Span<const int> Of(int device) const {
    const int begin = device == 0 ? 0 : ends_[device - 1];
    return absl::MakeConstSpan(parts_).subspan(begin, ends_[device] - begin);
  }

 private:
  std::vector<int> parts_;  // device by device
  std::vector<int> ends_;   // per device, in parts_
};

// Over all rounds.
int SlotOf(const std::vector<Part>& parts, size_t part) {
  const int slots = parts.back().slot + 1;
  const auto round = static_cast<int>(part / parts.size());
  return round * slots + parts[part % parts.size()].slot;
}

int64_t StageSumBytes(const Part& part, const ModelCosts& costs) {
  return costs.Sum(part.layers.first, part.layers.last,
                   [&](int layer) { return SumBytes(costs, layer); });
}

}  // namespace

int64_t ActivationBytes(const ModelCosts& costs, int layer) {
  if (layer == costs.head()) {
    const int64_t vocabulary =
        costs.head_bytes / (costs.element_bytes * costs.hidden);
    return std::min(kHeadChunkTokens, costs.tokens) * vocabulary * 8;
  }
  const int64_t attention =
      8 * costs.hidden + 4 * (costs.heads + costs.kv_heads) * costs.head_dim;
  const int64_t bf16_bytes =
      costs.tokens * (attention + 6 * costs.ActiveInner(layer));
  return bf16_bytes / 2 * costs.element_bytes;
}

int64_t BoundaryBufferBytes(const ModelCosts& costs) {
  // Input and gradient of two micro-batches, and the outputs of one going down.
  constexpr int64_t kBuffers = 6;
  return kBuffers * costs.element_bytes * costs.tokens * costs.hidden;
}

int64_t SumBytes(const ModelCosts& costs, int layer) {
  return 2 * costs.GradientBytes(layer);
}

int64_t PartWeightBytes(const Part& part, const ModelCosts& costs) {
  return costs.Sum(part.layers.first, part.layers.last,
                   [&](int layer) { return costs.WeightBytes(layer); });
}

int64_t PartSumBytes(const Part& part, const ModelCosts& costs) {
  if (!part.backward()) return 0;
  const auto groups = static_cast<uint64_t>(part.groups);
  const int64_t tree = std::bit_width(groups - 1) + 1;
  return std::max(tree, part.contributions) * StageSumBytes(part, costs);
}

int64_t PartDownBytes(const Part& part, const ModelCosts& costs) {
  return part.contributions * StageSumBytes(part, costs);
}

int64_t PartActivationBytes(const Part& part, const ModelCosts& costs) {
  const auto& [first, last] = part.layers;
  // A forward part keeps nothing behind it.
  const auto of_layer = [&](int layer) {
    return ActivationBytes(costs, layer);
  };
  const int64_t inner = part.backward() ? costs.Sum(first, last, of_layer)
                                        : costs.Most(first, last, of_layer);
  return inner + BoundaryBufferBytes(costs);
}

int64_t PartPeakBytes(const Part& part, const ModelCosts& costs) {
  return 2 * PartWeightBytes(part, costs) + PartSumBytes(part, costs) +
         PartDownBytes(part, costs) + PartActivationBytes(part, costs);
}

std::vector<DevicePeak> DevicePeaks(const std::vector<Part>& parts,
                                    const std::vector<int>& device_of,
                                    const ModelCosts& costs, int device_count,
                                    int look_ahead) {
  const std::vector<PartBytes> bytes = BytesOf(parts, costs);
  const Sequences sequences(device_of, device_count);
  const size_t count = parts.size();
  const size_t ahead = look_ahead;
  std::vector<DevicePeak> peaks(device_count);
  for (int d = 0; d < device_count; ++d) {
    const absl::Span<const int> sequence = sequences.Of(d);
    int64_t down = 0;
    int64_t weights = 0;  // of this part and those after it
    int64_t most = 0;
    int most_part = 0;
    for (size_t i = 0; i < sequence.size() + ahead; ++i) {
      if (i < sequence.size()) weights += bytes[sequence[i] % count].weights;
      if (i < ahead) continue;
      const int part = sequence[i - ahead];
      const PartBytes& of_part = bytes[part % count];
      const int64_t held = weights + of_part.inner + down;
      if (held > most) {
        most = held;
        most_part = part;
      }
      weights -= of_part.weights;
      down = of_part.down;
    }
    if (most > 0) peaks[d] = {most, SlotOf(parts, most_part)};
  }
  return peaks;
}

bool FusedPartIsTooLarge(const std::vector<Part>& parts,
                         const ModelCosts& costs, const Machine& machine) {
  int64_t most_bytes = 0;
  for (const SimulatedDevice& device : machine.devices) {
    most_bytes = std::max(most_bytes, device.memory_bytes);
  }
  return std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.kind == SlotKind::kFused &&
           PartWeightBytes(part, costs) + PartSumBytes(part, costs) +
                   PartActivationBytes(part, costs) >
               most_bytes;
  });
}

absl::Status CheckDeviceMemory(const std::vector<Part>& parts,
                               const std::vector<int>& device_of,
                               const ModelCosts& costs, const Machine& machine,
                               int look_ahead) {
  const std::vector<DevicePeak> peaks =
      DevicePeaks(parts, device_of, costs, machine.device_count(), look_ahead);
  for (size_t d = 0; d < peaks.size(); ++d) {
    if (peaks[d].bytes <= machine.devices[d].memory_bytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "device ", d, " needs ", peaks[d].bytes, " bytes for slot ",
        peaks[d].slot, ", it has ", machine.devices[d].memory_bytes));
  }
  return absl::OkStatus();
}

}  // namespace roundhouse
