#include "server/door/call_metrics.h"

#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"

namespace roundhouse {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

std::string CodeName(grpc::StatusCode code) {
  constexpr const char* kNames[] = {
      "OK",
      "CANCELLED",
      "UNKNOWN",
      "INVALID_ARGUMENT",
      "DEADLINE_EXCEEDED",
      "NOT_FOUND",
      "ALREADY_EXISTS",
      "PERMISSION_DENIED",
      "RESOURCE_EXHAUSTED",
      "FAILED_PRECONDITION",
      "ABORTED",
      "OUT_OF_RANGE",
      "UNIMPLEMENTED",
      "INTERNAL",
      "UNAVAILABLE",
      "DATA_LOSS",
      "UNAUTHENTICATED",
  };
  const auto number = static_cast<size_t>(code);
  return number < std::size(kNames) ? kNames[number] : "UNKNOWN";
}

class CallTimer final : public Interceptor {
 public:
  CallTimer(ServerMetrics& metrics, std::string service, std::string method)
      : metrics_(metrics),
        service_(std::move(service)),
        method_(std::move(method)) {}

  void Intercept(InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      metrics_.ObserveCall(service_, method_,
                           CodeName(batch->GetSendStatus().error_code()),
                           WallTime() - begun_);
    }
    batch->Proceed();
  }

 private:
  ServerMetrics& metrics_;
  const std::string service_;
  const std::string method_;
  const absl::Time begun_ = WallTime();
};

class CallTimers final : public ServerInterceptorFactoryInterface {
 public:
  CallTimers(ServerMetrics& metrics, std::set<std::string> methods)
      : metrics_(metrics), methods_(std::move(methods)) {}

  // "/roundhouse.v1.PlanService/PlanTraining"
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    const std::string name = info->method() == nullptr ? "" : info->method();
    if (methods_.count(name) == 0) {
      return new CallTimer(metrics_, kUnknownMethod, kUnknownMethod);
    }
    const size_t slash = name.rfind('/');
    return new CallTimer(metrics_, name.substr(1, slash - 1),
                         name.substr(slash + 1));
  }

 private:
  ServerMetrics& metrics_;
  const std::set<std::string> methods_;
};

}  // namespace

std::vector<std::unique_ptr<ServerInterceptorFactoryInterface>> CallMetrics(
    ServerMetrics& metrics, std::set<std::string> methods) {
  std::vector<std::unique_ptr<ServerInterceptorFactoryInterface>> factories;
  factories.push_back(
      std::make_unique<CallTimers>(metrics, std::move(methods)));
  return factories;
}

}  // namespace roundhouse
