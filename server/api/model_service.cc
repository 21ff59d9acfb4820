#include "server/api/model_service.h"

#include "server/api/sample_stream.h"

namespace roundhouse {

grpc::ServerWriteReactor<v1::SampleResponse>* ModelService::Sample(
    grpc::CallbackServerContext* context, const v1::SampleRequest* request) {
  return BeginSample(sampler_, work_, pump_, context, *request);
}

}  // namespace roundhouse
