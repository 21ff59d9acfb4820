#include "server/api/rpc_caller.h"

#include <chrono>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/grpc_reflection/reflection.pb.h"

namespace roundhouse {
namespace {

constexpr size_t kMostResponses = 64;
// A stream that says nothing for so long waits for something to happen.
constexpr std::chrono::milliseconds kStreamPatience(3);
// A call that takes longer goes on without us.
constexpr std::chrono::milliseconds kUnaryPatience(500);

void* Tag() { return nullptr; }

// One call at a time.
class Call {
 public:
  Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& path)
      : stub_(channel), call_(stub_.PrepareCall(&context_, path, &queue_)) {}

  // False: the call has ended.
  bool Start(const std::string& request) {
    call_->StartCall(Tag());
    if (!Done()) return false;
    const grpc::Slice slice(request);
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), Tag());
    return Done();
  }

  bool Read(std::chrono::milliseconds patience, std::string* response) {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, Tag());
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + patience;
    if (queue_.AsyncNext(&tag, &ok, deadline) ==
        grpc::CompletionQueue::TIMEOUT) {
      context_.TryCancel();
      ok = Done();
    }
    grpc::Slice slice;
    if (!ok || !buffer.DumpToSingleSlice(&slice).ok()) return false;
    response->assign(reinterpret_cast<const char*>(slice.begin()),
                     slice.size());
    return true;
  }

  void Cancel() { context_.TryCancel(); }

  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, Tag());
    ROUNDHOUSE_CHECK(Done());
    return status;
  }

 private:
  bool Done() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

RpcEnd Run(const std::shared_ptr<grpc::Channel>& channel,
           const std::string& path, const std::string& request,
           bool streaming) {
  RpcEnd end;
  Call call(channel, path);
  const auto patience = streaming ? kStreamPatience : kUnaryPatience;
  std::string response;
  if (call.Start(request)) {
    while (call.Read(patience, &response)) {
      end.responses.push_back(std::move(response));
      if (end.responses.size() == kMostResponses) call.Cancel();
    }
  }
  end.status = call.Finish();
  return end;
}

}  // namespace

std::vector<const RpcMethod*> ListRpcs(
    const std::shared_ptr<grpc::Channel>& channel) {
  grpc_reflection::Request request;
  request.set_list_services("*");
  const RpcEnd end = Run(
      channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      request.SerializeAsString(), false);
  grpc_reflection::Response response;
  ROUNDHOUSE_CHECK(end.responses.size() == 1 &&
                   response.ParseFromString(end.responses[0]))
      << end.status.error_message();
  std::vector<const RpcMethod*> methods;
  for (const auto& listed : response.services().service()) {
    if (!absl::StartsWith(listed.name(), "roundhouse.")) continue;
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            listed.name());
    ROUNDHOUSE_CHECK(service != nullptr) << listed.name();
    for (int i = 0; i < service->method_count(); ++i) {
      methods.push_back(service->method(i));
    }
  }
  return methods;
}

RpcEnd CallRpc(const std::shared_ptr<grpc::Channel>& channel,
               const RpcMethod& method, const std::string& request) {
  return Run(
      channel,
      absl::StrCat("/", method.service()->full_name(), "/", method.name()),
      request, method.server_streaming());
}

}  // namespace roundhouse
