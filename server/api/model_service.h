// roundhouse.v1.ModelService.
#ifndef ROUNDHOUSE_SERVER_API_MODEL_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_MODEL_SERVICE_H_

#include "proto/roundhouse/v1/model.grpc.pb.h"
#include "server/api/sample_engine.h"
#include "server/calls/stream_pump.h"
#include "server/calls/unary_call.h"
#include "server/hub/model_pulls.h"
#include "server/planning/model_catalog.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

// Thread-safe.  Everything given must outlive the gRPC server.
class ModelService final : public v1::ModelService::CallbackService {
 public:
  ModelService(const ModelCatalog* catalog, SampleEngine* sampler,
               ModelPulls* pulls, Uploads* uploads, const CallDoor& door)
      : catalog_(catalog),
        sampler_(sampler),
        pulls_(pulls),
        uploads_(uploads),
        door_(door) {}

  grpc::ServerUnaryReactor* ListModels(
      grpc::CallbackServerContext* context,
      const v1::ListModelsRequest* request,
      v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::Model* response) override;
  grpc::ServerWriteReactor<v1::SampleResponse>* Sample(
      grpc::CallbackServerContext* context,
      const v1::SampleRequest* request) override;
  grpc::ServerWriteReactor<v1::PullModelResponse>* PullModel(
      grpc::CallbackServerContext* context,
      const v1::PullModelRequest* request) override;

  // Ends all pulls, whose threads ask what calls go through.
  void Stop() { pulls_->Stop(); }

 private:
  const ModelCatalog* const catalog_;
  SampleEngine* const sampler_;
  ModelPulls* const pulls_;
  Uploads* const uploads_;
  const CallDoor door_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_MODEL_SERVICE_H_
