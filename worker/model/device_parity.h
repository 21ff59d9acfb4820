// A value-parameterised suite: a device computes what the host computes. It
// covers StageRuns of tiny models of every family, whole and with adapters,
// dropout, packed rows and windows, and samples. fp32 lies within a relative L2
// of 1e-5, bf16 and fp16 within 3e-2, so fp16 with a loss scale of the host's
// fp32. What overflows in fp16 is not finite. Dropout masks agree bit for bit,
// and so does a run twice.
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceParity,
//                            testing::Values(DeviceFactory(&NewCpuDevice)));
#ifndef ROUNDHOUSE_WORKER_MODEL_DEVICE_PARITY_H_
#define ROUNDHOUSE_WORKER_MODEL_DEVICE_PARITY_H_

#include "worker/device/device_suite.h"

namespace roundhouse::worker {

class DeviceParity : public DeviceSuite {};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_DEVICE_PARITY_H_
