#include "server/api/call_metrics.h"

#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

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
                           absl::Now() - begun_);
    }
    batch->Proceed();
  }

 private:
  ServerMetrics& metrics_;
  const std::string service_;
  const std::string method_;
  const absl::Time begun_ = absl::Now();
};

class CallTimers final : public ServerInterceptorFactoryInterface {
 public:
  explicit CallTimers(ServerMetrics& metrics) : metrics_(metrics) {}

  // "/roundhouse.v1.PlanService/Plan"
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    if (info->method() == nullptr || !Counts(info->method())) return nullptr;
    const std::vector<std::string> parts =
        absl::StrSplit(info->method(), absl::MaxSplits('/', 2));
    if (parts.size() != 3) return nullptr;
    return new CallTimer(metrics_, parts[1], parts[2]);
  }

 private:
  bool Counts(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (names_.count(name) > 0) return true;
    return names_.size() < kMaxMethodsWithMetrics && names_.insert(name).second;
  }

  ServerMetrics& metrics_;
  std::mutex mutex_;
  std::set<std::string> names_;  // guarded by mutex_
};

}  // namespace

std::vector<std::unique_ptr<ServerInterceptorFactoryInterface>> CallMetrics(
    ServerMetrics& metrics) {
  std::vector<std::unique_ptr<ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<CallTimers>(metrics));
  return factories;
}

}  // namespace roundhouse
