// Between base/model's configuration and the plain structs of the layout table.
#ifndef ROUNDHOUSE_BASE_WIRE_MODEL_DIMS_H_
#define ROUNDHOUSE_BASE_WIRE_MODEL_DIMS_H_

#include "base/model/config.h"
#include "base/model/parameters.h"
#include "base/wire/layout.h"

namespace roundhouse::wire {

ModelDims DimsOf(const ModelConfig& config);
// Fields that the computation does not read (initializer_range) keep their
// defaults.
ModelConfig ConfigOf(const ModelDims& dims, DType dtype);

AdapterDims DimsOf(const AdapterConfig& adapter);
AdapterConfig ConfigOf(const AdapterDims& dims);

}  // namespace roundhouse::wire

#endif  // ROUNDHOUSE_BASE_WIRE_MODEL_DIMS_H_
