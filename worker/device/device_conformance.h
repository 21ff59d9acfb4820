// What every Device must do, as a value-parameterised suite.  A backend's test
// instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
//                            testing::Values(DeviceFactory(&NewCpuDevice)));
#ifndef ROUNDHOUSE_WORKER_DEVICE_DEVICE_CONFORMANCE_H_
#define ROUNDHOUSE_WORKER_DEVICE_DEVICE_CONFORMANCE_H_

#include <functional>
#include <memory>

#include "gtest/gtest.h"
#include "worker/device/device.h"

namespace roundhouse::worker {

// Makes a device whose limit is the given number of bytes.
using DeviceFactory = std::function<std::unique_ptr<Device>(uint64_t)>;

class DeviceConformance : public testing::TestWithParam<DeviceFactory> {};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_DEVICE_CONFORMANCE_H_
