#include "worker/host/torch_threads.h"

#include "ATen/Parallel.h"

namespace roundhouse::worker {

void UseOneTorchThread() { at::set_num_threads(1); }

}  // namespace roundhouse::worker
