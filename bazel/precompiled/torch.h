#include "ATen/ATen.h"
#include "bazel/precompiled/common.h"
#include "torch/csrc/autograd/custom_function.h"
