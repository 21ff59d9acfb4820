// A job for fake workers (tests/fakes/fake_worker.cc) that has the proportions
// of a real one: a Qwen3 whose every width, and whose micro-batch, is a 32nd of
// the real model's, so that each matrix and each activation has a 1024th of its
// bytes, over links and a host memory of a 1024th of their rates.
#ifndef ROUNDHOUSE_TESTS_BENCH_FAKE_JOB_H_
#define ROUNDHOUSE_TESTS_BENCH_FAKE_JOB_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/model_costs.h"
#include "scheduler/plan/plan.h"
#include "tests/bench/daemon_job.h"

namespace roundhouse::bench {

inline constexpr int64_t kShrink = 32;
inline constexpr int64_t kByteShrink = kShrink * kShrink;
// Sequences of a micro-batch.
inline constexpr int64_t kRows = 4;
// The memory of a real device.
inline constexpr int64_t kDeviceBytes = int64_t{24} << 30;
// After how many bytes of a real device's bulk copy an activation goes first.
inline constexpr int64_t kCopyChunkBytes = int64_t{32} << 20;

struct FakeJobOptions {
  std::string root;     // of the source tree, or of Bazel's runfiles
  std::string scratch;  // an empty folder's path, 70 bytes at most
  ModelCosts costs;
  Plan plan;
  bool daemons_plan = false;  // the job names none: the daemon finds one
  int devices = 8;
  std::vector<double> speeds;  // of device 0, 1 ...; what is not named has 1
  int64_t micro_batches = 16;  // of a step, in one round
  int64_t steps = 10;
  int64_t first_step = 1;  // those after it are counted
  double scale = 1;        // times of the inputs, and of what crosses the links
  bool clip = true;        // an update waits for the norm of all gradients
  double pcie_gbps = 21;   // 10^9 bytes per second and direction
  double host_gbps = 200;  // 10^9 bytes per second, read and written together

  // The gradient groups of a step.
  int groups() const {
    return static_cast<int>(std::min<int64_t>(devices, micro_batches));
  }
};

// Writes model, dataset, costs, the workers' script and the job's file.
// INVALID_ARGUMENT naming the column of the inputs that cannot be shrunk: an
// expert model, or a width that 32 does not divide.
absl::StatusOr<DaemonJob> MakeFakeJob(const FakeJobOptions& options);

// Parts of it.  config.json of the shrunk model:
absl::StatusOr<std::string> FakeConfig(const ModelCosts& costs);
// tests/fakes/layer_costs.h's file, unscaled:
std::string FakeCosts(const ModelCosts& costs);

}  // namespace roundhouse::bench

#endif  // ROUNDHOUSE_TESTS_BENCH_FAKE_JOB_H_
