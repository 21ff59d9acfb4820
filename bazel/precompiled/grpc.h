#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "bazel/precompiled/common.h"
#include "nlohmann/json.hpp"
#include "proto/roundhouse/v1/checkpoint.grpc.pb.h"
#include "proto/roundhouse/v1/dataset.grpc.pb.h"
#include "proto/roundhouse/v1/fine_tuning_job.grpc.pb.h"
#include "proto/roundhouse/v1/model.grpc.pb.h"
#include "proto/roundhouse/v1/plan.grpc.pb.h"
#include "proto/roundhouse/v1/system.grpc.pb.h"
