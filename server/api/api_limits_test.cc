// What one caller can't take from the others, over real sockets.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"
#include "server/api/stream_pump.h"

namespace roundhouse {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;

class ApiLimitsTest : public ApiTestFixture {
 protected:
  using Message = v1::WatchFineTuningJobsResponse;
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<Message>> reader;
  };
  // Over a channel with connections of its own.
  std::unique_ptr<Watch> StartWatch(v1::FineTuningJobService::Stub& jobs) {
    auto watch = std::make_unique<Watch>();
    Limit(&watch->context);
    watch->reader = jobs.WatchFineTuningJobs(&watch->context, {});
    return watch;
  }
  std::unique_ptr<v1::FineTuningJobService::Stub> NewConnection() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::FineTuningJobService::NewStub(grpc::CreateCustomChannel(
        "unix:" + socket_, grpc::InsecureChannelCredentials(), arguments));
  }
};

TEST_F(ApiLimitsTest, AUserHasAShareOfTheStreams) {
  MustCreate();
  std::vector<std::unique_ptr<v1::FineTuningJobService::Stub>> connections;
  std::vector<std::unique_ptr<Watch>> watches;
  Message message;
  for (size_t i = 0; i < kMaxStreamsEach; ++i) {
    if (i % 40 == 0) connections.push_back(NewConnection());
    watches.push_back(StartWatch(*connections.back()));
    ASSERT_TRUE(watches.back()->reader->Read(&message)) << i;
  }
  auto refused = StartWatch(*connections.back());
  EXPECT_FALSE(refused->reader->Read(&message));
  const grpc::Status status = refused->reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(),
            "you have 100 streams open, the most of a user; end some and try "
            "again");
  // All else works, and those that are open go on.
  MustCreate();
  EXPECT_TRUE(watches.front()->reader->Read(&message));
  watches.front()->context.TryCancel();
  while (watches.front()->reader->Read(&message)) {
  }
  // The server may learn of its end a little later.
  bool opened = false;
  for (int tries = 0; !opened && tries < 10'000; ++tries) {
    auto again = StartWatch(*connections.back());
    opened = again->reader->Read(&message);
    again->context.TryCancel();
  }
  EXPECT_TRUE(opened);
  for (auto& watch : watches) watch->context.TryCancel();
}

TEST_F(ApiLimitsTest, CompressedRequestsAreRefused) {
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    Limit(&context);
    context.set_compression_algorithm(algorithm);
    v1::CreateFineTuningJobRequest request;
    request.set_text(kJobText + std::string(100'000, '\n'));
    v1::FineTuningJob job;
    EXPECT_EQ(jobs_->CreateFineTuningJob(&context, request, &job).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(engine_->submits(), 0);
  MustCreate();
}

TEST_F(ApiLimitsTest, AJobIsItsCallers) {
  MustCreate();
  EXPECT_EQ(engine_->principal(), absl::StrCat("uid:", geteuid()));
}

TEST_F(ApiLimitsTest, AConnectionWithoutCallsIsClosed) {
  StopServer();
  max_idle_ = absl::Milliseconds(100);
  StartServer({});
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, socket_.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(connect(fd, reinterpret_cast<struct sockaddr*>(&address),
                    sizeof(address)),
            0);
  const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
                          33);
  ASSERT_EQ(write(fd, hello.data(), hello.size()), 33);
  char buffer[4096];
  while (read(fd, buffer, sizeof(buffer)) > 0) {
  }
  close(fd);
  MustCreate();  // Clients connect again.
}

// The status of a call with an empty request, whatever the method.
grpc::Status Call(grpc::GenericStub* stub, const std::string& method) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(60));
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub->PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  next();
  call->WriteLast(grpc::ByteBuffer(nullptr, 0), {}, nullptr);
  next();
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
  } while (next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  return status;
}

// Every method that there is, and every one that there will be, asks who calls
// before it does anything.
TEST_F(ApiLimitsTest, NobodysCallsAreRefusedByEveryMethod) {
  MustCreate();
  grpc::GenericStub stub(server_->ChannelOfNobody());
  std::set<const FileDescriptor*> files;
  for (const char* name : {"account", "checkpoint", "dataset",
                           "fine_tuning_job", "model", "plan", "system"}) {
    files.insert(DescriptorPool::generated_pool()->FindFileByName(
        absl::StrCat("proto/roundhouse/v1/", name, ".proto")));
  }
  ASSERT_EQ(files.count(nullptr), 0u);
  int methods = 0;
  for (const FileDescriptor* file : files) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const MethodDescriptor& method = *file->service(i)->method(j);
        const grpc::Status status =
            Call(&stub, absl::StrCat("/", method.service()->full_name(), "/",
                                     method.name()));
        EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
            << method.full_name() << ": " << status.error_message();
        ++methods;
      }
    }
  }
  EXPECT_GE(methods, 20);
  EXPECT_EQ(store_->List({}, std::nullopt, 10)->jobs.size(), 1u);
}

}  // namespace
}  // namespace roundhouse
