#include "worker/model/tensors.h"

#include "base/log.h"

namespace roundhouse::worker {

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

at::Tensor BorrowTensor(const void* data, at::IntArrayRef shape, DType dtype) {
  // LibTorch has no tensor of const data; nobody writes through these.
  return at::from_blob(const_cast<void*>(data), shape,
                       at::TensorOptions().dtype(ScalarTypeOf(dtype)));
}

void CopyToMemory(const at::Tensor& source, void* data) {
  at::from_blob(data, source.sizes(), source.options().requires_grad(false))
      .copy_(source.detach());
}

}  // namespace roundhouse::worker
