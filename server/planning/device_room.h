// What each device has for jobs.
#ifndef ROUNDHOUSE_SERVER_PLANNING_DEVICE_ROOM_H_
#define ROUNDHOUSE_SERVER_PLANNING_DEVICE_ROOM_H_

#include <cstdint>

namespace roundhouse {

struct DeviceRoom {
  uint64_t bytes = 0;
  // What LibTorch computes with comes out of it, too (DeviceMemory in
  // worker/device/device.h): GPUs.
  bool with_libraries = false;
  // Wide slots may hold all their sums at once, to add them up with those of
  // other devices.
  bool holds_sums = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_PLANNING_DEVICE_ROOM_H_
