// Products of a bf16 matrix with a small fp32 one, as exact as in fp32, on a
// GPU's matrix units: the small matrix is the sum of three bf16 ones (Henry,
// Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype
// For Higher-Precision Computations", arXiv 1904.06376), products of bf16
// numbers are exact in fp32, and sums are fp32.  The large matrix is read once,
// as it is, where LibTorch's operators would first write it in fp32: adapters
// of rank 16 then move a seventh of the bytes.
//
// All tensors are on the kernels' device; matrices are dense, or the transposed
// view of a dense one.  Errors: c10::Error, as fused.h.
#ifndef ROUNDHOUSE_WORKER_MODEL_FUSED_SPLIT_PRODUCTS_H_
#define ROUNDHOUSE_WORKER_MODEL_FUSED_SPLIT_PRODUCTS_H_

#include "ATen/ATen.h"
#include "worker/model/fused/fused_kernels.h"

namespace roundhouse::worker {

// scale * x small in fp32, [m, n]; x [m, k] is bf16, small [k, n] fp32.
at::Tensor WideProduct(const FusedKernels& kernels, const at::Tensor& x,
                       const at::Tensor& small, double scale = 1);

// left right in bf16, [m, n], rounded once; left [m, r] and right [r, n] are
// fp32.  Products keep 16 bits of each factor, twice what the result has.
at::Tensor NarrowProduct(const FusedKernels& kernels, const at::Tensor& left,
                         const at::Tensor& right);

// base += scale * left right; base [m, n] is bf16, the others as in
// NarrowProduct.  A GPU's library was seen to round some products to bf16
// before it adds them.
void AddNarrowProduct(const FusedKernels& kernels, const at::Tensor& left,
                      const at::Tensor& right, double scale, at::Tensor& base);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_FUSED_SPLIT_PRODUCTS_H_
