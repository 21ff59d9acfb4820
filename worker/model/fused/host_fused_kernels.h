// FusedKernels of host memory: the rows of fused_rows.h one after the other,
// each by as many threads as a GPU's row has lanes.  For tests: the CPU's
// workers compute with LibTorch's operators.
#ifndef ROUNDHOUSE_WORKER_MODEL_FUSED_HOST_FUSED_KERNELS_H_
#define ROUNDHOUSE_WORKER_MODEL_FUSED_HOST_FUSED_KERNELS_H_

#include "worker/model/fused/fused_kernels.h"

namespace roundhouse::worker {

class HostFusedKernels : public FusedKernels {
 public:
  explicit HostFusedKernels(int lanes = 1) : lanes_(lanes) {}

  void Run(const RmsNormWork& work) const override;
  void Run(const RmsNormGradientWork& work) const override;
  void Run(const RopeWork& work) const override;
  void Run(const SwiGluWork& work) const override;
  void Run(const SwiGluGradientWork& work) const override;
  void Run(const SplitWork& work) const override;

 private:
  const int lanes_;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FUSED_HOST_FUSED_KERNELS_H_
