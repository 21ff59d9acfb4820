#include "worker/model/borrowed_weights.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/model/tensors.h"

namespace roundhouse::worker {
namespace {

constexpr uintptr_t kTensorAlignBytes = 64;

}  // namespace

absl::Status CheckAligned(const void* data, const std::string& what) {
  if (reinterpret_cast<uintptr_t>(data) % kTensorAlignBytes == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, " must start at a multiple of ", kTensorAlignBytes, " bytes"));
}

absl::Status BorrowParameters(int64_t layer,
                              const std::vector<ParameterSpec>& parameters,
                              const LayerWeights& weights,
                              const BorrowOptions& options,
                              LayerTensors* tensors) {
  for (const ParameterSpec& parameter : parameters) {
    const void* data = weights.weight[static_cast<int>(parameter.role)];
    if (data == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layer ", layer, ": no weights given for ", parameter.name));
    }
    RETURN_IF_ERROR(CheckAligned(data, parameter.name));
    (*tensors)[parameter.role] =
        BorrowTensor(data, parameter.shape, options.dtype, options.device)
            .requires_grad_(options.requires_grad);
  }
  return absl::OkStatus();
}

absl::StatusOr<HeadTensors> BorrowHeadTensors(const ModelConfig& config,
                                              DType dtype,
                                              const at::Device& device,
                                              const LayerWeights& weights) {
  const void* norm = weights.weight[static_cast<int>(ParamRole::kFinalNorm)];
  const void* matrix = weights.weight[static_cast<int>(ParamRole::kLmHead)];
  if (norm == nullptr || matrix == nullptr) {
    return absl::InvalidArgumentError(
        "the head needs the final norm and the LM head's matrix");
  }
  RETURN_IF_ERROR(CheckAligned(norm, "the final norm"));
  RETURN_IF_ERROR(CheckAligned(matrix, "the LM head's matrix"));
  return HeadTensors{
      BorrowTensor(norm, {config.hidden_size}, dtype, device),
      BorrowTensor(matrix, {config.vocab_size, config.hidden_size}, dtype,
                   device)};
}

}  // namespace roundhouse::worker
