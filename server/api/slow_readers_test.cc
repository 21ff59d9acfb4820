// Readers that take nothing: what 100 of them cost, that they are cut off, and
// that nothing is missing when they come back.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"
#include "server/calls/stream_pump.h"

namespace roundhouse {
namespace {

using Message = v1::WatchFineTuningJobsResponse;

constexpr int kWatchers = 100;
constexpr int64_t kMostBytesEach = 1 << 20;
// More than the windows of a connection hold.
constexpr int kEvents = 150;
constexpr size_t kMessageBytes = 10'000;
constexpr int kMostAttempts = 100;

// Resident memory of this process, which has the server and its readers.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class SlowReadersTest : public ApiTestFixture {
 protected:
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<Message>> reader;
  };

  void SetUp() override {
    patience_ = absl::Milliseconds(500);
    ApiTestFixture::SetUp();
  }
  // With a connection of its own and windows that do not grow.
  std::unique_ptr<v1::FineTuningJobService::Stub> NewConnection() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return v1::FineTuningJobService::NewStub(grpc::CreateCustomChannel(
        "unix:" + socket_, grpc::InsecureChannelCredentials(), arguments));
  }
  static std::unique_ptr<Watch> StartWatch(v1::FineTuningJobService::Stub& jobs,
                                           int64_t revision) {
    auto watch = std::make_unique<Watch>();
    Limit(&watch->context);
    v1::WatchFineTuningJobsRequest request;
    request.set_from_revision(revision);
    watch->reader = jobs.WatchFineTuningJobs(&watch->context, request);
    return watch;
  }
  // Watches that the server cancelled.
  int64_t Cancelled() const {
    for (const auto& line : absl::StrSplit(metrics_->Render(), '\n')) {
      int64_t count = 0;
      if (absl::StartsWith(line, "grpc_server_handled_total") &&
          absl::StrContains(line, "WatchFineTuningJobs") &&
          absl::StrContains(line, "CANCELLED") &&
          absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &count)) {
        return count;
      }
    }
    return 0;
  }
};

TEST_F(SlowReadersTest, AHundredOfThemCostLittleAndMissNothing) {
  MustCreate();
  const std::string long_text(kMessageBytes, 'x');
  ASSERT_TRUE(
      store_->Transition("job-1", JobState::kQueued, {.message = long_text})
          .ok());
  const int64_t first = *store_->Revision();
  std::vector<std::unique_ptr<v1::FineTuningJobService::Stub>> connections;
  std::vector<std::unique_ptr<Watch>> watches;
  const int64_t before = ResidentBytes();
  for (int i = 0; i < kWatchers; ++i) {
    if (i % 2 == 0) connections.push_back(NewConnection());
    watches.push_back(StartWatch(*connections.back(), first));
  }
  for (int i = 0; i < kEvents; ++i) {
    ASSERT_TRUE(store_->AddEvent("job-1", "note", "x").ok());
  }
  const int64_t last = *store_->Revision();
  int64_t most = 0;
  while (Cancelled() < kWatchers) most = std::max(most, ResidentBytes());
  RecordProperty("bytes_each", absl::StrCat((most - before) / kWatchers));
  EXPECT_LE(most - before, kWatchers * kMostBytesEach);

  for (int i = 0; i < kWatchers; ++i) {
    int64_t seen = first;
    Message message;
    const auto read = [&](Watch& watch) {
      while (seen < last && watch.reader->Read(&message)) {
        if (message.kind() != Message::CHANGE) continue;
        ASSERT_EQ(message.revision(), seen + 1);
        seen = message.revision();
      }
    };
    read(*watches[i]);
    EXPECT_LT(seen, last);
    EXPECT_EQ(watches[i]->reader->Finish().error_code(),
              grpc::StatusCode::CANCELLED);
    // On a busy machine this reader too may be cut off; it comes back again.
    for (int attempt = 0; seen < last; ++attempt) {
      ASSERT_LT(attempt, kMostAttempts);
      const auto again = StartWatch(*connections[0], seen);
      read(*again);
      again->context.TryCancel();
      while (again->reader->Read(&message)) {
      }
      ASSERT_EQ(again->reader->Finish().error_code(),
                grpc::StatusCode::CANCELLED);
    }
  }
}

}  // namespace
}  // namespace roundhouse
