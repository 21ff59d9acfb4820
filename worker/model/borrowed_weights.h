// LayerWeights, which lie in the caller's memory on `device`, as tensors.
// Includes ATen: for .cc files of worker/model only.  Thread-safe.
#ifndef ROUNDHOUSE_WORKER_MODEL_BORROWED_WEIGHTS_H_
#define ROUNDHOUSE_WORKER_MODEL_BORROWED_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/model/config.h"
#include "base/model/parameters.h"
#include "worker/model/layers.h"
#include "worker/model/stage_run.h"

namespace roundhouse::worker {

// INVALID_ARGUMENT naming `what`, unless `data` is 64-byte aligned: matrix
// products have equal bits for equal alignments only.
absl::Status CheckAligned(const void* data, const std::string& what);

struct BorrowOptions {
  DType dtype = DType::kF32;
  at::Device device = at::kCPU;
  bool requires_grad = false;  // leaves of autograd
};

// Adds `parameters` of `layer` to `tensors`.  INVALID_ARGUMENT naming the
// parameter that `weights` lacks or has unaligned.
absl::Status BorrowParameters(int64_t layer,
                              const std::vector<ParameterSpec>& parameters,
                              const LayerWeights& weights,
                              const BorrowOptions& options,
                              LayerTensors* tensors);

struct HeadTensors {
  at::Tensor final_norm;  // [hidden]
  at::Tensor lm_head;     // [vocab, hidden]
};

// INVALID_ARGUMENT: `weights` lacks one of them or has it unaligned.
absl::StatusOr<HeadTensors> BorrowHeadTensors(const ModelConfig& config,
                                              DType dtype,
                                              const at::Device& device,
                                              const LayerWeights& weights);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_BORROWED_WEIGHTS_H_
