// The one way through each of a decoder layer's seven matrices.
#ifndef ROUNDHOUSE_WORKER_MODEL_PROJECTION_H_
#define ROUNDHOUSE_WORKER_MODEL_PROJECTION_H_

#include "ATen/ATen.h"
#include "base/model/parameters.h"
#include "worker/model/layers.h"

namespace roundhouse::worker {

// x W^T, plus the bias where the layer has one, plus the adapter where the
// context has one for the matrix.  x is [n, in]; returns [n, out].  REQUIRES:
// `matrix` is one of kLinearRoles.
at::Tensor Projection(const LayerContext& context, const LayerTensors& weights,
                      ParamRole matrix, const at::Tensor& x);

}  // namespace roundhouse::worker

#endif  // ROUNDHOUSE_WORKER_MODEL_PROJECTION_H_
