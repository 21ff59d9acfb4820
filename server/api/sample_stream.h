// ModelService.Sample: a sampler's pieces as they come.
#ifndef ROUNDHOUSE_SERVER_API_SAMPLE_STREAM_H_
#define ROUNDHOUSE_SERVER_API_SAMPLE_STREAM_H_

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/model.pb.h"
#include "server/api/sample_engine.h"
#include "server/calls/stream_pump.h"
#include "server/calls/unary_call.h"

namespace roundhouse {

// Within the limits of sample_engine.h, or kInvalidArgument with the field.
// Pure.
absl::StatusOr<SampleQuestion> FromProto(const v1::SampleRequest& request);

// Answers the call; the request is copied.  All but the context outlive the
// gRPC server.  Thread-safe.
grpc::ServerWriteReactor<v1::SampleResponse>* BeginSample(
    SampleEngine* engine, const CallDoor& door,
    grpc::CallbackServerContext* context, const v1::SampleRequest& request);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_SAMPLE_STREAM_H_
