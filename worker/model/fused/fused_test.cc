// The arithmetic of every kernel, on one lane of the host; and that of rows
// that many lanes share.
#include <vector>

#include "gtest/gtest.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/model/fused/fused_suite.h"
#include "worker/model/fused/host_fused_kernels.h"

namespace roundhouse::worker {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, FusedSuite,
                         testing::Values(DeviceFactory(&NewCpuDevice)));

// A norm of 3 rows, forward and backward.
struct Norm {
  explicit Norm(int64_t columns)
      : x(kRows * columns),
        dy(kRows * columns),
        weight(columns),
        y(kRows * columns),
        dx(kRows * columns),
        scales(kRows) {
    for (int64_t i = 0; i < kRows * columns; ++i) {
      x[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
      dy[i] = static_cast<float>(i * 53 % 97) / 48 - 1;
    }
    for (int64_t i = 0; i < columns; ++i) {
      weight[i] = static_cast<float>(i * 29 % 31) / 15 - 1;
    }
  }

  void Run(const HostFusedKernels& kernels) {
    const auto columns = static_cast<int64_t>(weight.size());
    RmsNormWork forward;
    forward.rows = kRows;
    forward.columns = columns;
    forward.x = x.data();
    forward.weight = weight.data();
    forward.epsilon = 1e-6f;
    forward.y = y.data();
    forward.scales = scales.data();
    kernels.Run(forward);
    RmsNormGradientWork backward;
    backward.rows = kRows;
    backward.columns = columns;
    backward.dy = dy.data();
    backward.x = x.data();
    backward.weight = weight.data();
    backward.scales = scales.data();
    backward.dx = dx.data();
    kernels.Run(backward);
  }

  static constexpr int64_t kRows = 3;
  std::vector<float> x, dy, weight, y, dx, scales;
};

TEST(HostFusedKernelsTest, LanesShareARow) {
  // Fewer packs than lanes, as many, and more, in packs and one by one.
  for (const int64_t columns : {4, 24, 32, 37, 128, 516}) {
    Norm alone(columns), shared(columns);
    alone.Run(HostFusedKernels());
    shared.Run(HostFusedKernels(/*lanes=*/8));
    for (int64_t i = 0; i < Norm::kRows * columns; ++i) {
      EXPECT_NEAR(shared.y[i], alone.y[i], 1e-5) << columns << " " << i;
      EXPECT_NEAR(shared.dx[i], alone.dx[i], 1e-5) << columns << " " << i;
    }
  }
}

}  // namespace
}  // namespace roundhouse::worker
