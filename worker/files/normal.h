// Random weights that are the same on every machine, in every order, with any
// number of readers: element i of stream s under a seed is a function of the
// three only.
//
// The generator is Philox4x32-10 (base/philox.h); one block gives the two
// normals of an even element and its successor by the Box-Muller transform in
// double.  The logarithm, sine and cosine are our own sums of IEEE additions,
// multiplications and divisions, since libm's last bits differ by version; the
// target is compiled without contraction to fused operations.  Pure.
#ifndef ROUNDHOUSE_WORKER_FILES_NORMAL_H_
#define ROUNDHOUSE_WORKER_FILES_NORMAL_H_

#include <cstdint>

namespace roundhouse::worker {

// `count` values from element `first` on, normal with mean 0 and deviation
// `deviation`, rounded to fp32.  REQUIRES: first is even.
void FillNormal(uint64_t seed, uint64_t stream, uint64_t first,
                double deviation, float* values, uint64_t count);

// As many values, uniform from -`bound` to `bound`, rounded to fp32.
// REQUIRES: first is even.
void FillUniform(uint64_t seed, uint64_t stream, uint64_t first, double bound,
                 float* values, uint64_t count);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_FILES_NORMAL_H_
