#include "scheduler/search/step_bound.h"

#include <algorithm>

#include "scheduler/simulate/device_memory.h"

namespace roundhouse {
namespace {

double UpdateNs(const ModelCosts& costs, const Machine& machine,
                Updates updates, int layer) {
  const double rate =
      std::min(machine.HostWorkRate(), MostUpdateBytesRate(updates));
  return static_cast<double>(UpdateBytes(costs, layer, updates)) / rate;
}

double LinkNs(const Machine& machine, int64_t bytes) {
  return static_cast<double>(bytes) /
         std::min(machine.link_rate, machine.host_rate);
}

// Trained bytes of the weights: what waits for an update.
double UploadNs(const ModelCosts& costs, const Machine& machine, int layer) {
  return LinkNs(machine,
                std::min(costs.WeightBytes(layer), costs.GradientBytes(layer)));
}

// Down and reduced, when layer 0 is the last.
double LastReductionNs(const ModelCosts& costs, const Machine& machine,
                       const BoundOptions& options) {
  int64_t reduced =
      ReduceBytes(costs, 0, options.contributions, options.updates, 1);
  if (options.rounds > 1) reduced += AddToSumBytes(costs, 0);
  return LinkNs(machine, ContributionBytes(costs, 0, options.contributions)) +
         static_cast<double>(reduced) / machine.HostWorkRate();
}

// Decoder blocks that fit a device as a fused tail: weights and activations.
int LongestTail(const ModelCosts& costs, const Machine& machine) {
  int64_t memory = 0;
  for (const SimulatedDevice& device : machine.devices) {
    memory = std::max(memory, device.memory_bytes);
  }
  const int64_t head = costs.head_bytes + SumBytes(costs, costs.head()) +
                       ActivationBytes(costs, costs.head());
  int64_t left = memory - head;
  int blocks = 0;
  while (blocks < costs.layers) {
    const int layer = costs.layers - 1 - blocks;
    left -= costs.WeightBytes(layer) + SumBytes(costs, layer) +
            ActivationBytes(costs, layer);
    if (left < 0) break;
    ++blocks;
  }
  return blocks;
}

double ClippedNs(const ModelCosts& costs, const Machine& machine,
                 const BoundOptions& options) {
  double updated_ns = 0, forward_ns = 0, longest_ns = 0;
  for (int layer = 0; layer <= costs.head(); ++layer) {
    updated_ns += UpdateNs(costs, machine, options.updates, layer);
    longest_ns = std::max(
        longest_ns, updated_ns + UploadNs(costs, machine, layer) - forward_ns);
    forward_ns += static_cast<double>(costs.ForwardNs(layer)) *
                  options.micro_batches / machine.TotalSpeed();
  }
  return longest_ns + LastReductionNs(costs, machine, options) +
         ComputeNs(costs, machine, options);
}

}  // namespace

double ComputeNs(const ModelCosts& costs, const Machine& machine,
                 const BoundOptions& options) {
  return static_cast<double>(costs.MicroBatchNs()) * options.micro_batches *
         options.rounds / machine.TotalSpeed();
}

double TurnAroundNs(const ModelCosts& costs, const Machine& machine,
                    const BoundOptions& options) {
  if (IsStale(options.updates) || costs.GradientBytes(0) == 0) {
    return 0;
  }
  return LastReductionNs(costs, machine, options) +
         UpdateNs(costs, machine, options.updates, 0) +
         UploadNs(costs, machine, 0);
}

int64_t LeastHostBytes(const ModelCosts& costs, const Machine& machine,
                       const BoundOptions& options) {
  const int tail = costs.layers - LongestTail(costs, machine);
  int64_t round = options.micro_batches * costs.BoundaryBytes();
  int64_t updates = 0;
  for (int layer = 0; layer <= costs.head(); ++layer) {
    round +=
        (layer < tail ? 2 : 1) * costs.WeightBytes(layer) +
        ContributionBytes(costs, layer, options.contributions) +
        ReduceBytes(costs, layer, options.contributions, options.updates, 1);
    updates += UpdateBytes(costs, layer, options.updates);
    updates += (options.rounds - 1) * AddToSumBytes(costs, layer);
  }
  return options.rounds * round + updates;
}

StepBound BoundOf(const ModelCosts& costs, const Machine& machine,
                  const BoundOptions& options) {
  const double compute_ns = ComputeNs(costs, machine, options);
  StepBound bound{compute_ns, "compute"};
  auto raise = [&bound](double ns, absl::string_view name) {
    if (ns > bound.ns) bound = {ns, name};
  };
  raise(static_cast<double>(LeastHostBytes(costs, machine, options)) /
            machine.host_rate,
        "host memory");
  raise(compute_ns + TurnAroundNs(costs, machine, options), "layer 0");
  if (options.updates == Updates::kClipped) {
    raise(ClippedNs(costs, machine, options), "updates");
  }
  return bound;
}

}  // namespace roundhouse
