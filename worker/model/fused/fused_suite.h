// A value-parameterised suite for any kind of device: fused kernels compute
// what they stand for. A device without kernels of its own is given those of
// host_fused_kernels.h. Values and gradients lie within what the roundings of
// the dtype are worth of fp64 references. Rotary has the bits of LibTorch's
// operators; of SwiGLU at most one element in a hundred differs, by one
// rounding. A run twice agrees bit for bit.
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, FusedSuite,
//                            testing::Values(DeviceFactory(&NewCpuDevice)));
#ifndef ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_SUITE_H_
#define ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_SUITE_H_

#include <memory>

#include "worker/device/device_suite.h"
#include "worker/model/fused/fused_kernels.h"

namespace roundhouse::worker {

class FusedSuite : public DeviceSuite {
 protected:
  FusedSuite();
  ~FusedSuite() override;
  void SetUp() override;

  struct Bench;  // the device, its stream, LibTorch on it
  std::unique_ptr<Bench> bench_;
  const FusedKernels* kernels_ = nullptr;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FUSED_FUSED_SUITE_H_
