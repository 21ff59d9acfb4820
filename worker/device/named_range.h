// A named stretch of the calling thread's work, for a profiler to show: an NVTX
// range where the build has CUDA (Nsight Systems reads those), else nothing.
// Which of the two is chosen by linking.
#ifndef ROUNDHOUSE_WORKER_DEVICE_NAMED_RANGE_H_
#define ROUNDHOUSE_WORKER_DEVICE_NAMED_RANGE_H_

#include <cstdint>

namespace roundhouse::worker {

// From its construction to its end, which must come in the same thread and
// within any range that was begun before it there.
class NamedRange {
 public:
  // "forward 3-5 m2", as traces have it; `micro_batch` -1: none.
  NamedRange(const char* what, uint32_t first_layer, uint32_t last_layer,
             int32_t micro_batch);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_DEVICE_NAMED_RANGE_H_
