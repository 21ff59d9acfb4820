#include "scheduler/search/step_estimate.h"

#include <algorithm>
#include <utility>

#include "scheduler/simulate/device_memory.h"

namespace roundhouse {
namespace {

// Fitted to 3,000 simulations of random plans of the published models: from
// these shares of host memory's time on, rounds of consecutive steps take
// longer than links alone would have it.
constexpr double kCrowded = 0.8;
constexpr double kSlowedByCrowding = 0.5;
constexpr double kCrowdedBackward = 0.7;
constexpr double kSlowedBackward = 0.6;
// Up to this many times what is computed between two fused slots, they lie as
// close as in those plans; beyond, waiting spreads the backward slots' bytes.
constexpr double kMostlyComputes = 1.15;
// The share of updates one step stale that runs before the next fused slot all
// the same.
constexpr double kStaleUpdates = 0.5;
// The share of an isolated round's bubble that is left where rounds overlap.
constexpr double kOfBubble = 0.25;

struct Device {
  double free_ns = 0;
  double link_free_ns = 0;
  std::vector<double> starts_ns;  // of its parts
};

// One lap of a part: what can run before the gradient is there, and the rest;
// of that a fused part's forward.
struct Lap {
  double before_ns = 0;
  double after_ns = 0;
  double forward_ns = 0;
};

Lap LapOf(const Part& part, const ModelCosts& costs, double speed) {
  const bool recomputes = part.kind == SlotKind::kBackward;
  const auto sum = [&](auto&& of_layer) {
    return static_cast<double>(
               costs.Sum(part.layers.first, part.layers.last, of_layer)) /
           speed;
  };
  Lap lap;
  if (recomputes) {
    lap.before_ns = sum([&](int layer) { return costs.RecomputeNs(layer); });
  }
  lap.after_ns = sum([&](int layer) {
    return (recomputes ? 0 : costs.ForwardNs(layer)) +
           (part.backward() ? costs.BackwardNs(layer) : 0);
  });
  if (part.kind == SlotKind::kFused) {
    lap.forward_ns = sum([&](int layer) { return costs.ForwardNs(layer); });
  }
  return lap;
}

// The first layer's sums, the last to be complete, go down and are reduced.
double LastReductionNs(const std::vector<Part>& parts, const ModelCosts& costs,
                       const Machine& machine, Contributions contributions,
                       Updates updates) {
  int64_t count = 0;
  for (const Part& part : parts) {
    if (part.backward() && part.layers.first == 0) count += part.contributions;
  }
  const auto down =
      static_cast<double>(ContributionBytes(costs, 0, contributions));
  const auto reduced =
      static_cast<double>(ReduceBytes(costs, 0, contributions, updates, count));
  return down / machine.link_rate + reduced / machine.HostWorkRate();
}

// What a round moves through host memory, and of that reductions.
struct Traffic {
  double all_bytes = 0;
  double reduced_bytes = 0;

  // At least, the reductions one after the other.
  double Ns(const Machine& machine) const {
    return std::max(all_bytes / machine.host_rate, ReduceNs(machine));
  }
  double ReduceNs(const Machine& machine) const {
    return reduced_bytes / machine.HostWorkRate();
  }
};

Traffic TrafficOf(const std::vector<Part>& parts, const ModelCosts& costs,
                  Contributions contributions, Updates updates) {
  int64_t bytes = 0;
  int64_t contributed = 0;
  for (const Part& part : parts) {
    bytes += PartWeightBytes(part, costs);
    // Input up and output down; a backward part also uploads a gradient.
    const int boundaries = part.kind == SlotKind::kBackward ? 3 : 2;
    bytes += boundaries * part.micro_batches.size() * costs.BoundaryBytes();
    if (!part.backward()) continue;
    contributed +=
        part.contributions *
        costs.Sum(part.layers.first, part.layers.last, [&](int layer) {
          return ContributionBytes(costs, layer, contributions);
        });
  }
  int64_t sums = 0;
  for (int layer = 0; layer <= costs.head(); ++layer) {
    sums += ReduceBytes(costs, layer, contributions, updates, 0);
  }
  // Contributions go down, and are read once more.
  return {static_cast<double>(bytes + 2 * contributed + sums),
          static_cast<double>(contributed + sums)};
}

// What a round computes and moves through host memory, at the devices' and the
// host's full rates.
struct Round {
  double forward_ns = 0;  // compute
  double fused_ns = 0;
  double backward_ns = 0;
  double forward_host_ns = 0;   // forward slots' weights and activations
  double fused_host_ns = 0;     // the fused slot's weights
  double backward_host_ns = 0;  // all else
  double reduce_ns = 0;         // of it

  double ComputeNs() const { return forward_ns + fused_ns + backward_ns; }
  double HostNs() const {
    return forward_host_ns + fused_host_ns + backward_host_ns;
  }
};

// By layer a fused part's last backward is like those of other slots: sums go
// down under it.
Round RoundOf(const std::vector<Part>& parts, const ModelCosts& costs,
              const Machine& machine, const BoundOptions& options,
              FusedSlots fused) {
  const double speed = machine.TotalSpeed();
  const auto boundary_bytes = static_cast<double>(costs.BoundaryBytes());
  Round round;
  for (const Part& part : parts) {
    const double ns = static_cast<double>(PartNs(part, costs)) / speed;
    const auto weights = static_cast<double>(PartWeightBytes(part, costs));
    if (part.kind == SlotKind::kFused) {
      round.fused_ns += ns;
      if (fused == FusedSlots::kByLayer) {
        const Lap lap = LapOf(part, costs, speed);
        round.backward_ns += lap.after_ns - lap.forward_ns;
        round.fused_ns -= lap.after_ns - lap.forward_ns;
      }
      round.fused_host_ns += weights / machine.host_rate;
    } else if (part.kind == SlotKind::kForward) {
      round.forward_ns += ns;
      round.forward_host_ns +=
          (weights + 2 * part.micro_batches.size() * boundary_bytes) /
          machine.host_rate;
    } else {
      round.backward_ns += ns;
    }
  }
  const Traffic traffic =
      TrafficOf(parts, costs, options.contributions, options.updates);
  round.backward_host_ns = traffic.all_bytes / machine.host_rate -
                           round.forward_host_ns - round.fused_host_ns;
  round.reduce_ns = traffic.ReduceNs(machine);
  return round;
}

// A round of `ns` where host memory is not crowded, with `update_ns` of it for
// updates.  What the fused slot's compute leaves behind it, sums and updates of
// the whole tail, has to be through before that slot's next weights go up, and
// so has everything else but those weights: while only the other slots compute.
// Most of it comes down where the backward slots want theirs up.
double CrowdedNs(const Round& round, double ns, double update_ns) {
  const double rest_ns = ns - round.fused_ns;
  const double host_ns =
      round.forward_host_ns + round.backward_host_ns + update_ns;
  if (rest_ns <= 0) return round.fused_ns + host_ns;
  const double crowded = std::max(0.0, host_ns / rest_ns - kCrowded);
  double slowed_ns =
      std::max(rest_ns * (1 + kSlowedByCrowding * crowded), host_ns);
  if (round.backward_ns > 0) {
    const double backward_ns =
        round.backward_ns *
        std::max(1.0, rest_ns / (kMostlyComputes *
                                 (round.forward_ns + round.backward_ns)));
    const double share = round.backward_host_ns / backward_ns;
    slowed_ns += backward_ns * kSlowedBackward *
                 std::max(0.0, std::min(share, 2.0) - kCrowdedBackward);
  }
  return round.fused_ns + slowed_ns;
}

}  // namespace

int64_t HostBytes(const std::vector<Part>& parts, const ModelCosts& costs,
                  Contributions contributions, Updates updates) {
  return static_cast<int64_t>(
      TrafficOf(parts, costs, contributions, updates).all_bytes);
}

double EstimateStepNs(const std::vector<Part>& parts,
                      const std::vector<int>& device_of,
                      const ModelCosts& costs, const Machine& machine,
                      const StepToEstimate& step) {
  const double hop_ns =
      static_cast<double>(2 * costs.BoundaryBytes()) / machine.link_rate;
  std::vector<Device> devices(machine.devices.size());
  // When each micro-batch left the slot before, and leaves this one.
  std::vector<double> before(step.micro_batches), now(step.micro_batches);
  double end_ns = 0;
  int slot = 0;  // whose micro-batches leave now
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    // What runs again takes its device's time, and waits for nothing.
    if (!part.again && part.slot != std::exchange(slot, part.slot)) {
      std::swap(before, now);
    }
    const int d = device_of[i];
    Device& device = devices[d];
    const size_t sent = device.starts_ns.size();
    const size_t ahead = static_cast<size_t>(step.look_ahead);
    const double upload_ns =
        std::max(device.link_free_ns,
                 sent >= ahead ? device.starts_ns[sent - ahead] : 0.0);
    const auto first_bytes =
        static_cast<double>(costs.WeightBytes(part.layers.first));
    const auto all_bytes = static_cast<double>(PartWeightBytes(part, costs));
    const auto activation_bytes =
        static_cast<double>((part.kind == SlotKind::kBackward ? 2 : 1) *
                            part.micro_batches.size() * costs.BoundaryBytes());
    const double all_up_ns = upload_ns + all_bytes / machine.link_rate;
    device.link_free_ns = all_up_ns + activation_bytes / machine.link_rate;
    const bool whole =
        part.kind == SlotKind::kFused && step.fused == FusedSlots::kWhole;
    double t =
        std::max(device.free_ns, upload_ns + (whole ? all_bytes : first_bytes) /
                                                 machine.link_rate);
    const Lap lap = LapOf(part, costs, machine.devices[d].speed);
    device.starts_ns.push_back(t);
    for (int64_t m = part.micro_batches.begin; m < part.micro_batches.end;
         ++m) {
      const double there_ns = part.again ? 0 : before[m] + hop_ns;
      const bool first = m == part.micro_batches.begin;
      t = std::max(t + lap.before_ns, there_ns) + lap.forward_ns;
      if (first && lap.forward_ns > 0) t = std::max(t, all_up_ns);
      t += lap.after_ns - lap.forward_ns;
      if (first) t = std::max(t, all_up_ns);
      if (!part.again) now[m] = t;
    }
    device.free_ns = t;
    end_ns = std::max(end_ns, t);
  }
  end_ns +=
      LastReductionNs(parts, costs, machine, step.contributions, step.updates);
  return std::max(
      end_ns,
      TrafficOf(parts, costs, step.contributions, step.updates).Ns(machine));
}

double EstimateStepsNs(const std::vector<Part>& parts, double step_ns,
                       const ModelCosts& costs, const Machine& machine,
                       const BoundOptions& options, FusedSlots fused) {
  const Round round = RoundOf(parts, costs, machine, options, fused);
  double update_ns = 0;
  double add_ns = 0;  // to the sums of the rounds before
  for (int layer = 0; layer <= costs.head(); ++layer) {
    update_ns +=
        static_cast<double>(UpdateBytes(costs, layer, options.updates));
    add_ns += static_cast<double>(AddToSumBytes(costs, layer));
  }
  update_ns /= machine.HostWorkRate();
  add_ns /= machine.HostWorkRate();
  const double compute_ns = round.ComputeNs();
  // Rounds between two updates overlap, stale steps all do.
  const double overlapped_ns = compute_ns + kOfBubble * (step_ns - compute_ns);
  const int more = options.rounds - 1;
  const double host_ns = options.rounds * round.HostNs() + more * add_ns;
  double all_ns = 0;
  if (IsStale(options.updates)) {
    const double under_ns = kStaleUpdates * update_ns / options.rounds;
    all_ns = options.rounds * CrowdedNs(round, overlapped_ns, under_ns);
  } else {
    const double turn_around_ns =
        BoundOf(costs, machine, options).ns -
        ComputeNs(costs, machine, options) -
        LastReductionNs(parts, costs, machine, options.contributions,
                        options.updates);
    all_ns = CrowdedNs(round, step_ns + turn_around_ns, update_ns) +
             more * CrowdedNs(round, overlapped_ns, add_ns);
  }
  const double work_ns = options.rounds * round.reduce_ns + more * add_ns;
  return std::max(all_ns, std::max(host_ns, work_ns) + update_ns);
}

}  // namespace roundhouse
