// What every Device must do, as a value-parameterised suite.  A backend's test
// instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
//                            testing::Values(DeviceFactory(&NewCpuDevice)));
#ifndef ROUNDHOUSE_WORKER_DEVICE_DEVICE_CONFORMANCE_H_
#define ROUNDHOUSE_WORKER_DEVICE_DEVICE_CONFORMANCE_H_

#include "worker/device/device_suite.h"

namespace roundhouse::worker {

class DeviceConformance : public DeviceSuite {};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_DEVICE_CONFORMANCE_H_
