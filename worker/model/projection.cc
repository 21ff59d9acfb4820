#include "worker/model/projection.h"

#include "worker/model/lora.h"

namespace roundhouse::worker {

at::Tensor Projection(const LayerContext& context, const LayerTensors& weights,
                      ParamRole matrix, const at::Tensor& x) {
  const at::Tensor base = Linear(x, weights[matrix], weights[BiasOf(matrix)]);
  if (context.adapter == nullptr) return base;
  return AddAdapter(context, weights, matrix, x, base);
}

}  // namespace roundhouse::worker
