// What one caller can't take from the others, over real sockets.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"
#include "server/calls/stream_pump.h"
#include "server/limits/limit_table.h"
#include "server/usage/usage_table.h"

namespace roundhouse {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;

// The limits' table says again what holds without it.
TEST(LimitTableTest, BuiltInLimitsAreTheConstants) {
  const PeerLimits peers;
  EXPECT_EQ(InfoOf(Limit::kCallsPerSecond).built_in, peers.user_calls);
  EXPECT_EQ(InfoOf(Limit::kBytesInFlight).built_in,
            static_cast<int64_t>(peers.user_unfinished_bytes));
  EXPECT_EQ(InfoOf(Limit::kOpenStreams).built_in,
            static_cast<int64_t>(kMaxStreamsEach));
  EXPECT_EQ(InfoOf(Limit::kOpenStreams).most,
            static_cast<int64_t>(kMaxStreams));
}

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
  grpc::Status Set(const std::string& subject, const std::string& limit,
                   int64_t value) {
    grpc::ClientContext context;
    Limit(&context);
    v1::SetLimitRequest request;
    request.set_subject(subject);
    request.set_limit(limit);
    request.set_value(value);
    v1::Limit out;
    return account_stub_->SetLimit(&context, request, &out);
  }
  // A line each: subject, limit, value, and what is used if that is known.
  std::string List() {
    grpc::ClientContext context;
    Limit(&context);
    v1::ListLimitsResponse response;
    EXPECT_TRUE(account_stub_->ListLimits(&context, {}, &response).ok());
    std::string text;
    for (const v1::Limit& limit : response.limits()) {
      absl::StrAppend(&text, limit.subject(), " ", limit.limit(), " ",
                      limit.value(), limit.built_in() ? " built in" : "",
                      limit.has_used() ? absl::StrCat(" ", limit.used()) : "",
                      "\n");
    }
    return text;
  }
  // A socket that no gRPC library uses.
  int Connect() const {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, socket_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd, reinterpret_cast<struct sockaddr*>(&address),
                      sizeof(address)),
              0);
    return fd;
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
  const int fd = Connect();
  const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
                          33);
  ASSERT_EQ(write(fd, hello.data(), hello.size()), 33);
  char buffer[4096];
  while (read(fd, buffer, sizeof(buffer)) > 0) {
  }
  close(fd);
  MustCreate();  // Clients connect again.
}

TEST_F(ApiLimitsTest, ACallThatWaitedTooLongDoesNothing) {
  StopServer();
  unary_deadline_ = absl::Nanoseconds(-1);
  StartServer({});
  v1::CreateFineTuningJobRequest request;
  request.set_text(kJobText);
  v1::FineTuningJob job;
  EXPECT_EQ(Create(request, &job).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(engine_->submits(), 0);
}

// A client that is gone without a word: its stream would stay for ever.
TEST_F(ApiLimitsTest, AConnectionThatAnswersNothingIsClosed) {
  StopServer();
  keepalive_ = absl::Milliseconds(200);
  StartServer({});
  MustCreate();
  const int fd = Connect();
  const auto frame = [](uint8_t type, uint8_t flags, uint8_t stream,
                        const std::string& payload) {
    std::string out = {0, static_cast<char>(payload.size() >> 8),
                       static_cast<char>(payload.size()),
                       static_cast<char>(type), static_cast<char>(flags)};
    return out + std::string(3, '\0') + static_cast<char>(stream) + payload;
  };
  std::string fields;
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>(":method", "POST"),
        {":scheme", "http"},
        {":path", "/roundhouse.v1.FineTuningJobService/WatchFineTuningJobs"},
        {":authority", "localhost"},
        {"te", "trailers"},
        {"content-type", "application/grpc"}}) {
    fields += '\0';
    fields += static_cast<char>(name.size());
    fields += name;
    fields += static_cast<char>(value.size());
    fields += value;
  }
  constexpr uint8_t kData = 0, kHeaders = 1, kSettings = 4, kEnd = 1,
                    kEndHeaders = 4;
  const std::string call = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
                           frame(kSettings, 0, 0, "") +
                           frame(kHeaders, kEndHeaders, 1, fields) +
                           frame(kData, kEnd, 1, std::string(5, '\0'));
  ASSERT_EQ(write(fd, call.data(), call.size()),
            static_cast<ssize_t>(call.size()));
  // Reads all, answers no ping.
  std::string got(1 << 16, '\0');
  size_t bytes = 0;
  for (ssize_t some = 1; some > 0; bytes += some) {
    some = std::max<ssize_t>(0, read(fd, got.data(), got.size()));
  }
  close(fd);
  EXPECT_GT(bytes, 100u);
  MustCreate();
}

TEST_F(ApiLimitsTest, UsageIsOfAll) {
  const UsageKey key = {.hour = HourOf(WallTime()),
                        .job = 3,
                        .project = "vision",
                        .user = "anna"};
  ASSERT_TRUE(
      WriteUsage(*store_, {{key, {int64_t{1'800} * 1'000'000'000, 0}}}).ok());
  grpc::ClientContext context;
  Limit(&context);
  v1::GetUsageRequest request;
  request.set_by(v1::USAGE_BY_JOB);
  v1::GetUsageResponse response;
  const grpc::Status status =
      account_stub_->GetUsage(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.usage_size(), 1);
  EXPECT_EQ(response.usage(0).job(), "job-3");
  EXPECT_EQ(response.usage(0).user(), "anna");
  EXPECT_EQ(response.usage(0).device_hours(), 0.5);
  EXPECT_EQ(response.usage(0).device_share(), 1);
}

// Limits that an admin set, over the wire; this test's user is trusted, so
// they are looked at, and hold for nobody here.
TEST_F(ApiLimitsTest, LimitsAreSetListedAndRemoved) {
  const std::string constants =
      "everybody calls_per_second 1000 built in\n"
      "everybody open_streams 100 built in\n"
      "everybody bytes_in_flight 8388608 built in\n"
      "everybody urgent_jobs 0 built in\n"
      "everybody share 1 built in\n"
      "everybody lent_devices 0 built in\n";
  EXPECT_EQ(List(), constants);
  MustCreate();
  ASSERT_TRUE(Set("project:default", "queued_jobs", 1).ok());
  ASSERT_TRUE(Set("everybody", "queued_jobs", 1).ok());
  EXPECT_EQ(Set("user:nobody", "queued_jobs", 1).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(List(), constants +
                        "everybody queued_jobs 1\n"
                        "project:default queued_jobs 1 1\n");
  MustCreate();  // an admin's
  ASSERT_TRUE(Set("project:default", "share", 3).ok());
  EXPECT_EQ(engine_->sharing().weights.projects.at("default"), 3);
  StopServer();
  StartServer({});
  EXPECT_EQ(engine_->sharing().weights.projects.at("default"), 3);
  grpc::ClientContext context;
  Limit(&context);
  v1::RemoveLimitRequest request;
  request.set_subject("everybody");
  request.set_limit("queued_jobs");
  v1::RemoveLimitResponse response;
  ASSERT_TRUE(account_stub_->RemoveLimit(&context, request, &response).ok());
  EXPECT_EQ(List(), constants +
                        "project:default queued_jobs 1 2\n"
                        "project:default share 3\n");
}

// Also of what jobs and devices count.
TEST_F(ApiLimitsTest, LimitsSayWhatIsUsed) {
  engine_->used.running.Add({"default", "anna"}, 3);
  engine_->used.host_bytes.Add({"default", "anna"}, 700);
  engine_->used.gpu_hours.Add({"default", "anna"}, 2);
  ASSERT_TRUE(Set("project:default", "gpu_hours", 6).ok());
  ASSERT_TRUE(Set("project:default", "running_jobs", 4).ok());
  ASSERT_TRUE(Set("everybody", "host_bytes", 800).ok());  // each one's
  ASSERT_TRUE(Set("server", "host_bytes", 900).ok());
  ASSERT_TRUE(Set("server", "lent_devices", 2).ok());
  const std::string limits = List();
  EXPECT_TRUE(absl::EndsWith(limits,
                             "project:default running_jobs 4 3\n"
                             "server lent_devices 2 0\n"
                             "project:default gpu_hours 6 2\n"
                             "everybody host_bytes 800\n"
                             "server host_bytes 900 700\n"))
      << limits;
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
  for (const char* name :
       {"account", "checkpoint", "dataset", "fine_tuning_job", "model", "plan",
        "system", "upload"}) {
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
