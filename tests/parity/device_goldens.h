// A value-parameterised suite: a device's losses and gradients are those of
// transformers and PEFT. It covers every checkpoint and adapter of the goldens:
// step 0 as one micro-batch, and packed, through StageRuns as a worker computes
// them. fp32 lies within a relative L2 of 1e-5, bf16 within twice transformers'
// own error in bf16, fp16 within once that error.
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceGoldens,
//                            testing::Values(DeviceFactory(&NewCpuDevice)));
#ifndef ROUNDHOUSE_TESTS_PARITY_DEVICE_GOLDENS_H_
#define ROUNDHOUSE_TESTS_PARITY_DEVICE_GOLDENS_H_

#include "worker/device/device_suite.h"

namespace roundhouse::parity {

class DeviceGoldens : public worker::DeviceSuite {};

}  // namespace roundhouse::parity

#endif  // ROUNDHOUSE_TESTS_PARITY_DEVICE_GOLDENS_H_
