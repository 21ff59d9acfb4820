// How fast bytes cross one GPU's link, and how fast host memory is registered
// for it, by doing both.
//
// From and to memory as the daemon's arena has it: a memfd, mapped shared, its
// pages there already.  Pageable copies go through the driver's own buffers;
// registered ones are the GPU's.  Of `repeats` copies the median counts.
//
// Blocks for a second or two.  Nothing else should use the link meanwhile.
#ifndef ROUNDHOUSE_WORKER_DEVICE_CUDA_LINK_RATES_H_
#define ROUNDHOUSE_WORKER_DEVICE_CUDA_LINK_RATES_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace roundhouse::worker {

struct LinkOptions {
  int device = 0;                               // CUDA's ordinal
  uint64_t copy_bytes = uint64_t{256} << 20;    // of one copy
  uint64_t register_bytes = uint64_t{4} << 30;  // host memory, at once
  int repeats = 7;                              // of every copy
};

// Copies in 10^9 bytes a second, registration in GiB a second.
struct LinkRates {
  double h2d_pageable_gbps = 0;
  double d2h_pageable_gbps = 0;
  double h2d_registered_gbps = 0;
  double d2h_registered_gbps = 0;
  // Each way while the other one is busy, too.
  double both_ways_registered_gbps = 0;
  double register_gib_per_second = 0;
  double unregister_gib_per_second = 0;
  // Device memory that the registration took (the GPU's page tables).
  uint64_t register_device_bytes = 0;
};

// REQUIRES: 0 < copy_bytes <= register_bytes, repeats >= 1.
// Errors: CudaStatus', INTERNAL where the host has no such memory.
absl::StatusOr<LinkRates> MeasureLink(const LinkOptions& options);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_CUDA_LINK_RATES_H_
