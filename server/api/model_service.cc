#include "server/api/model_service.h"

#include "base/status.h"
#include "base/visible_text.h"
#include "server/api/pulls/pull_stream.h"
#include "server/api/sample_stream.h"
#include "server/calls/unary_call.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

void Put(const MethodNeed& need, v1::MethodNeed* out) {
  out->set_host_bytes(static_cast<int64_t>(need.host_bytes));
  out->set_fits(need.fits);
  out->set_problem(ValidUtf8(need.problem));
}

v1::Model ToProto(const ModelInfo& info, uint64_t host_limit_bytes) {
  v1::Model out;
  out.set_name(ValidUtf8(info.name));
  out.set_path(ValidUtf8(info.path));
  out.set_family(info.family);
  out.set_parameters(info.parameters);
  out.set_dtype(info.dtype);
  out.set_bytes(static_cast<int64_t>(info.bytes));
  out.set_adapter(info.adapter);
  out.set_base_model(ValidUtf8(info.base_model));
  out.set_host_limit_bytes(static_cast<int64_t>(host_limit_bytes));
  if (info.full.has_value()) Put(*info.full, out.mutable_full());
  if (info.lora.has_value()) Put(*info.lora, out.mutable_lora());
  out.set_problem(ValidUtf8(info.problem));
  return out;
}

}  // namespace

grpc::ServerUnaryReactor* ModelService::ListModels(
    grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
    v1::ListModelsResponse* response) {
  return RunUnary(
      context, door_, request,
      [this, response](const Entered& entered) -> absl::Status {
        ASSIGN_OR_RETURN(const ModelList list, catalog_->List(entered.caller));
        for (const ModelInfo& info : list.models) {
          *response->add_models() = ToProto(info, catalog_->host_limit_bytes());
        }
        response->set_truncated(list.truncated);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ModelService::GetModel(
    grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
    v1::Model* response) {
  return RunUnary(
      context, door_, request,
      [=, this](const Entered& entered) -> absl::Status {
        if (request->name().empty()) {
          return FieldError(FieldReason::kMissingField, "name", "is missing");
        }
        ASSIGN_OR_RETURN(const ModelInfo info,
                         catalog_->Get(request->name(), entered.caller));
        *response = ToProto(info, catalog_->host_limit_bytes());
        return absl::OkStatus();
      });
}

grpc::ServerWriteReactor<v1::SampleResponse>* ModelService::Sample(
    grpc::CallbackServerContext* context, const v1::SampleRequest* request) {
  return BeginSample(sampler_, door_, context, *request);
}

grpc::ServerWriteReactor<v1::PullModelResponse>* ModelService::PullModel(
    grpc::CallbackServerContext* context, const v1::PullModelRequest* request) {
  return BeginPull(pulls_, uploads_, door_, context, *request);
}

}  // namespace roundhouse
