// The door between this process's memory and LibTorch: tensors over borrowed
// memory, and LibTorch's exceptions as statuses.  Includes ATen: for .cc files
// of worker/model only.  Thread-safe.
#ifndef ROUNDHOUSE_WORKER_MODEL_TENSORS_H_
#define ROUNDHOUSE_WORKER_MODEL_TENSORS_H_

#include <exception>
#include <string>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"

namespace roundhouse::worker {

at::ScalarType ScalarTypeOf(DType dtype);

// A dense row-major tensor over caller's memory on `device`, which must outlive
// it.
at::Tensor BorrowTensor(const void* data, at::IntArrayRef shape, DType dtype,
                        const at::Device& device = at::kCPU);

// Writes `source` densely to `data`, memory of its own device, in its own
// dtype.
void CopyToMemory(const at::Tensor& source, void* data);

// The same to memory of the host; it is there when the call returns.
void CopyToHost(const at::Tensor& source, void* data);

// Runs `body`, which returns a Status; an exception becomes INTERNAL, or
// RESOURCE_EXHAUSTED when memory ran out, and names `what`.
template <typename Body>
absl::Status GuardTorch(const std::string& what, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::InternalError(
        absl::StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what()));
  }
}

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_TENSORS_H_
