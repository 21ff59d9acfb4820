// roundhouse.v1.ModelService.
#ifndef ROUNDHOUSE_SERVER_API_MODEL_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_MODEL_SERVICE_H_

#include "proto/roundhouse/v1/model.grpc.pb.h"
#include "server/api/sample_engine.h"
#include "server/api/stream_pump.h"
#include "server/pool/work_pool.h"

namespace roundhouse {

// Thread-safe.  Everything given must outlive the gRPC server.
class ModelService final : public v1::ModelService::CallbackService {
 public:
  ModelService(SampleEngine* sampler, WorkPool* work, StreamPump* pump)
      : sampler_(sampler), work_(work), pump_(pump) {}

  grpc::ServerWriteReactor<v1::SampleResponse>* Sample(
      grpc::CallbackServerContext* context,
      const v1::SampleRequest* request) override;

 private:
  SampleEngine* const sampler_;
  WorkPool* const work_;
  StreamPump* const pump_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_MODEL_SERVICE_H_
