#include "worker/model/tensors.h"

#include "base/log.h"

namespace roundhouse::worker {
namespace {

// The device is known: LibTorch need not ask the driver whose address it is.
at::Tensor Over(void* data, at::IntArrayRef shape,
                const at::TensorOptions& options) {
  return at::for_blob(data, shape)
      .options(options)
      .target_device(options.device())
      .make_tensor();
}

}  // namespace

at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
  }
  ROUNDHOUSE_CHECK(false) << "dtype " << static_cast<uint32_t>(dtype);
  return at::kFloat;
}

at::Tensor BorrowTensor(const void* data, at::IntArrayRef shape, DType dtype,
                        const at::Device& device) {
  // LibTorch has no tensor of const data; nobody writes through these.
  return Over(const_cast<void*>(data), shape,
              at::TensorOptions().dtype(ScalarTypeOf(dtype)).device(device));
}

void CopyToMemory(const at::Tensor& source, void* data) {
  Over(data, source.sizes(), source.options().requires_grad(false))
      .copy_(source.detach());
}

void CopyToHost(const at::Tensor& source, void* data) {
  CopyToMemory(source.to(at::kCPU), data);
}

}  // namespace roundhouse::worker
