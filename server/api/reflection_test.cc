// The API describes itself: server reflection, as grpcurl asks it.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "proto/grpc_reflection/reflection.pb.h"
#include "server/api/api_test_fixture.h"
#include "server/door/open_calls.h"

namespace roundhouse {
namespace {

using grpc_reflection::Request;
using grpc_reflection::Response;

class ReflectionTest : public ApiTestFixture {
 protected:
  grpc::Slice empty_;
  // The answer to one request.
  Response Ask(const Request& request) {
    grpc::ClientContext context;
    Limit(&context);
    grpc::CompletionQueue queue;
    auto done = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    grpc::TemplatedGenericStub<Request, Response> stub(channel_);
    const auto call = stub.PrepareCall(
        &context,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        &queue);
    Response response;
    grpc::Status status;
    call->StartCall(nullptr);
    EXPECT_TRUE(done());
    call->Write(request, nullptr);
    EXPECT_TRUE(done());
    call->Read(&response, nullptr);
    EXPECT_TRUE(done());
    call->WritesDone(nullptr);
    EXPECT_TRUE(done());
    call->Finish(&status, nullptr);
    EXPECT_TRUE(done());
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

TEST_F(ReflectionTest, EveryServiceIsListed) {
  Request request;
  request.set_list_services("*");
  std::set<std::string> names;
  const Response response = Ask(request);
  for (const auto& service : response.services().service()) {
    names.insert(service.name());
  }
  EXPECT_EQ(
      names,
      (std::set<std::string>{
          "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection",
          "roundhouse.v1.AccountService", "roundhouse.v1.CheckpointService",
          "roundhouse.v1.DatasetService", "roundhouse.v1.FineTuningJobService",
          "roundhouse.v1.ModelService", "roundhouse.v1.PlanService",
          "roundhouse.v1.SystemService", "roundhouse.v1.UploadService"}));
}

TEST_F(ReflectionTest, AServicesMethodsAreDescribed) {
  Request request;
  request.set_file_containing_symbol("roundhouse.v1.SystemService");
  std::set<std::string> methods;
  const Response response = Ask(request);
  for (const std::string& bytes : response.files().file_descriptor()) {
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(bytes));
    for (const auto& service : file.service()) {
      for (const auto& method : service.method()) {
        methods.insert(absl::StrCat(service.name(), ".", method.name()));
      }
    }
  }
  EXPECT_EQ(methods.count("SystemService.GetServer"), 1u);
  EXPECT_EQ(methods.count("SystemService.ListDevices"), 1u);
}

TEST_F(ReflectionTest, AnUnknownSymbolIsAnError) {
  Request request;
  request.set_file_containing_symbol("roundhouse.v1.NoSuchService");
  EXPECT_EQ(Ask(request).error().code(),
            static_cast<int>(grpc::StatusCode::NOT_FOUND));
}

// One more than a user's places, of calls that need no token and stay open.
TEST_F(ReflectionTest, WatchesAndReflectionsThatStayOpenHaveANumber) {
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  };
  grpc::CompletionQueue queue;
  auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  grpc::GenericStub stub(channel_);
  std::vector<std::unique_ptr<Watch>> watches;
  grpc::ByteBuffer answer;
  const auto watch = [&] {
    watches.push_back(std::make_unique<Watch>());
    Watch& own = *watches.back();
    Limit(&own.context);
    // In turn; each answers an empty request, reflection with an error in it.
    own.call = stub.PrepareCall(
        &own.context,
        watches.size() % 2 == 0
            ? "/grpc.health.v1.Health/Watch"
            : "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        &queue);
    own.call->StartCall(nullptr);
    EXPECT_TRUE(done());
    own.call->Write(grpc::ByteBuffer(&empty_, 1), nullptr);
    done();
    own.call->Read(&answer, nullptr);
    return done();
  };
  for (size_t i = 0; i < OpenCallLimits{}.each_user; ++i) {
    EXPECT_TRUE(watch()) << i;
  }
  EXPECT_FALSE(watch());
  grpc::Status status;
  watches.back()->call->Finish(&status, nullptr);
  EXPECT_TRUE(done());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << status.error_message();
  for (size_t i = 0; i + 1 < watches.size(); ++i) {
    watches[i]->context.TryCancel();
    watches[i]->call->Finish(&status, nullptr);
    done();
  }
}

}  // namespace
}  // namespace roundhouse
