#include "scheduler/simulate/step_estimate.h"

#include <algorithm>

#include "scheduler/simulate/device_memory.h"

namespace roundhouse {
namespace {

// Fitted to simulations: from this share of host memory's time on, consecutive
// steps take longer than links alone would have it.
constexpr double kCrowded = 0.78;
constexpr double kSlowedByCrowding = 0.3;
// Of an isolated round's bubble, what is left where rounds overlap.
constexpr double kOfBubble = 0.25;

struct Device {
  double free_ns = 0;
  double link_free_ns = 0;
  std::vector<double> starts_ns;  // of its parts
};

// One turn of a part: what can run before the gradient is there, and the rest.
struct Turn {
  double before_ns = 0;
  double after_ns = 0;
};

Turn TurnOf(const Part& part, const ModelCosts& costs, double speed) {
  const bool recomputes = part.pass == SlotPass::kBackward;
  const auto sum = [&](auto&& of_layer) {
    return static_cast<double>(
               costs.Sum(part.layers.first, part.layers.last, of_layer)) /
           speed;
  };
  Turn turn;
  if (recomputes) {
    turn.before_ns = sum([&](int layer) { return costs.RecomputeNs(layer); });
  }
  turn.after_ns = sum([&](int layer) {
    return (recomputes ? 0 : costs.ForwardNs(layer)) +
           (part.backward() ? costs.BackwardNs(layer) : 0);
  });
  return turn;
}

// The first layer's sums, the last to be complete, go down and are reduced.
double LastReductionNs(const std::vector<Part>& parts, const ModelCosts& costs,
                       const Machine& machine, Contributions contributions) {
  int64_t count = 0;
  for (const Part& part : parts) {
    if (part.backward() && part.layers.first == 0) count += part.contributions;
  }
  const auto down =
      static_cast<double>(ContributionBytes(costs, 0, contributions));
  const auto reduced =
      static_cast<double>(ReduceBytes(costs, 0, contributions, count));
  return down / machine.link_rate + reduced / machine.host_rate;
}

}  // namespace

int64_t HostBytes(const std::vector<Part>& parts, const ModelCosts& costs,
                  Contributions contributions) {
  int64_t bytes = 0;
  for (const Part& part : parts) {
    bytes += PartWeightBytes(part, costs);
    // Input up and output down; a backward part also uploads a gradient.
    const int boundaries = part.pass == SlotPass::kBackward ? 3 : 2;
    bytes += boundaries * part.micro_batches.size() * costs.BoundaryBytes();
    if (!part.backward()) continue;
    // Down, and read once more.
    bytes += 2 * part.contributions *
             costs.Sum(part.layers.first, part.layers.last, [&](int layer) {
               return ContributionBytes(costs, layer, contributions);
             });
  }
  for (int layer = 0; layer <= costs.head(); ++layer) {
    bytes += ReduceBytes(costs, layer, contributions, 0);
  }
  return bytes;
}

double EstimateStepNs(const std::vector<Part>& parts,
                      const std::vector<int>& device_of,
                      const ModelCosts& costs, const Machine& machine,
                      int micro_batches, int look_ahead,
                      Contributions contributions) {
  const double hop_ns =
      static_cast<double>(2 * costs.BoundaryBytes()) / machine.link_rate;
  std::vector<Device> devices(machine.devices.size());
  // When each micro-batch left the slot before, and leaves this one.
  std::vector<double> before(micro_batches), now(micro_batches);
  double end_ns = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (i > 0 && part.slot != parts[i - 1].slot) std::swap(before, now);
    const int d = device_of[i];
    Device& device = devices[d];
    const size_t sent = device.starts_ns.size();
    const size_t ahead = static_cast<size_t>(look_ahead);
    const double upload_ns =
        std::max(device.link_free_ns,
                 sent >= ahead ? device.starts_ns[sent - ahead] : 0.0);
    const auto first_bytes =
        static_cast<double>(costs.WeightBytes(part.layers.first));
    const auto all_bytes = static_cast<double>(PartWeightBytes(part, costs));
    const auto activation_bytes =
        static_cast<double>((part.pass == SlotPass::kBackward ? 2 : 1) *
                            part.micro_batches.size() * costs.BoundaryBytes());
    const double all_up_ns = upload_ns + all_bytes / machine.link_rate;
    device.link_free_ns = all_up_ns + activation_bytes / machine.link_rate;
    const bool whole = part.pass == SlotPass::kFused;
    double t =
        std::max(device.free_ns, upload_ns + (whole ? all_bytes : first_bytes) /
                                                 machine.link_rate);
    const Turn turn = TurnOf(part, costs, machine.devices[d].speed);
    device.starts_ns.push_back(t);
    for (int64_t m = part.micro_batches.begin; m < part.micro_batches.end;
         ++m) {
      const double there_ns = before[m] + hop_ns;
      t = std::max(t + turn.before_ns, there_ns) + turn.after_ns;
      if (m == part.micro_batches.begin) t = std::max(t, all_up_ns);
      now[m] = t;
    }
    device.free_ns = t;
    end_ns = std::max(end_ns, t);
  }
  end_ns += LastReductionNs(parts, costs, machine, contributions);
  const auto host = static_cast<double>(HostBytes(parts, costs, contributions));
  return std::max(end_ns, host / machine.host_rate);
}

double EstimateStepsNs(const std::vector<Part>& parts, double step_ns,
                       const ModelCosts& costs, const Machine& machine,
                       const BoundOptions& options) {
  double compute_ns = 0;
  for (const Part& part : parts) {
    compute_ns += static_cast<double>(PartNs(part, costs));
  }
  compute_ns /= machine.TotalSpeed();
  double host_bytes =
      static_cast<double>(HostBytes(parts, costs, options.contributions)) *
      options.rounds;
  for (int layer = 0; layer <= costs.head(); ++layer) {
    host_bytes +=
        static_cast<double>(UpdateBytes(costs, layer) +
                            (options.rounds - 1) * AddToSumBytes(costs, layer));
  }
  const double least_ns = ComputeNs(costs, machine, options);
  // Rounds between two updates overlap, stale steps all do.
  const double overlapped_ns = compute_ns + kOfBubble * (step_ns - compute_ns);
  double all_ns = options.rounds * overlapped_ns;
  if (options.updates != Updates::kStale) {
    all_ns += step_ns - overlapped_ns;
    all_ns += BoundOf(costs, machine, options).ns - least_ns -
              LastReductionNs(parts, costs, machine, options.contributions);
  }
  const double host_ns = host_bytes / machine.host_rate;
  const double crowded = std::max(0.0, host_ns / all_ns - kCrowded);
  return std::max(all_ns * (1 + kSlowedByCrowding * crowded), host_ns);
}

}  // namespace roundhouse
