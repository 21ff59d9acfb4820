// Watch, logs and step metrics over a real socket.
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

using Message = v1::WatchFineTuningJobsResponse;
using S = JobState;

class ApiStreamTest : public ApiTestFixture {
 protected:
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<Message>> reader;
    // The next message of `kind`; unset when the stream ended before.
    Message Next(Message::Kind kind) {
      Message message;
      while (reader->Read(&message)) {
        if (message.kind() == kind) return message;
      }
      return {};
    }
  };
  std::unique_ptr<Watch> StartWatch(const std::string& name, int64_t revision,
                                    bool until_final = false) {
    auto watch = std::make_unique<Watch>();
    Limit(&watch->context);
    v1::WatchFineTuningJobsRequest request;
    request.set_name(name);
    request.set_from_revision(revision);
    request.set_until_final(until_final);
    watch->reader = jobs_->WatchFineTuningJobs(&watch->context, request);
    return watch;
  }
  std::string Logs(const std::string& name, bool follow, int tail_lines) {
    grpc::ClientContext context;
    Limit(&context);
    v1::StreamFineTuningJobLogsRequest request;
    request.set_name(name);
    request.set_follow(follow);
    request.set_tail_lines(tail_lines);
    auto reader = jobs_->StreamFineTuningJobLogs(&context, request);
    std::string all;
    v1::StreamFineTuningJobLogsResponse chunk;
    while (reader->Read(&chunk)) all += chunk.data();
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return all;
  }
};

// As a client does whose way to the server may be gone without a word.
TEST_F(ApiStreamTest, AClientMayAskWhetherTheServerIsThere) {
  StopServer();
  least_ping_ = absl::ZeroDuration();
  StartServer({});
  grpc::ChannelArguments asks;
  asks.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20);
  asks.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const auto channel = grpc::CreateCustomChannel(
      "unix:" + socket_, grpc::InsecureChannelCredentials(), asks);
  jobs_ = v1::FineTuningJobService::NewStub(channel);
  MustCreate();
  const auto watch = StartWatch("", 0);
  watch->Next(Message::BOOKMARK);
  // More questions than gRPC takes of a client that may not ask.
  EXPECT_FALSE(channel->WaitForStateChange(
      GRPC_CHANNEL_READY,
      absl::ToChronoTime(absl::Now() + absl::Milliseconds(300))))
      << "the server has ended the connection";
  MustCreate();
  EXPECT_EQ(watch->Next(Message::CHANGE).job().name(),
            "projects/default/fineTuningJobs/job-2");
  watch->context.TryCancel();
}

TEST_F(ApiStreamTest, WatchGivesTheSnapshotThenEachChange) {
  MustCreate();
  MustCreate();
  Move("job-2", {S::kFailed});
  auto watch = StartWatch("", 0);
  Message message = watch->Next(Message::CHANGE);
  EXPECT_EQ(message.job().name(), "projects/default/fineTuningJobs/job-1");
  message = watch->Next(Message::BOOKMARK);
  EXPECT_EQ(message.revision(), 3);
  Move("job-1", {S::kQueued, S::kLoading});
  message = watch->Next(Message::CHANGE);
  EXPECT_EQ(message.revision(), 4);
  EXPECT_EQ(message.job().state(), v1::QUEUED);
  message = watch->Next(Message::CHANGE);
  EXPECT_EQ(message.revision(), 5);
  EXPECT_EQ(message.job().state(), v1::LOADING);
  EXPECT_EQ(message.job().submitted_text(), "");
  watch->context.TryCancel();
}

// Whoever watches is told to call again when accounts make him somebody else.
TEST_F(ApiStreamTest, AStreamEndsWhenItsCallerIsNotWhoHeWas) {
  MustCreate();
  const auto watch = StartWatch("", 0);
  watch->Next(Message::BOOKMARK);
  ASSERT_TRUE(accounts_->AddProject("vision").ok());
  ASSERT_TRUE(
      accounts_
          ->SetUser({.name = "anna", .uid = geteuid(), .role = Role::kAdmin})
          .ok());
  watch->Next(Message::KIND_UNSPECIFIED);
  EXPECT_EQ(watch->reader->Finish().error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ApiStreamTest, ResumingMissesNothingAndRepeatsNothing) {
  constexpr int kJobs = 40;
  MustCreate();
  std::thread writer([&] {
    for (int i = 1; i <= kJobs; ++i) {
      const auto job = store_->Create({.text = "t", .resolved = "{}"});
      ASSERT_TRUE(job.ok());
      Move(job->id, {S::kQueued, S::kLoading, S::kRunning});
    }
  });
  // Reads a few changes, drops the stream, goes on from the last revision.
  std::vector<int64_t> seen;
  const int64_t last = 1 + 4 * kJobs;
  for (int64_t from = 1; from < last;) {
    auto watch = StartWatch("", from);
    for (int i = 0; i < 7 && from < last; ++i) {
      const Message message = watch->Next(Message::CHANGE);
      ASSERT_EQ(message.kind(), Message::CHANGE);
      seen.push_back(message.revision());
      from = message.revision();
    }
    watch->context.TryCancel();
  }
  writer.join();
  ASSERT_EQ(seen.size(), static_cast<size_t>(4 * kJobs));
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i], static_cast<int64_t>(i) + 2);
  }
}

TEST_F(ApiStreamTest, WatchingOneJobEndsWithIt) {
  MustCreate();
  MustCreate();
  auto watch = StartWatch("job-1", 0, true);
  EXPECT_EQ(watch->Next(Message::CHANGE).job().state(), v1::VALIDATING);
  Move("job-2", {S::kQueued});
  Move("job-1", {S::kQueued, S::kCancelled});
  EXPECT_EQ(watch->Next(Message::CHANGE).job().state(), v1::QUEUED);
  EXPECT_EQ(watch->Next(Message::CHANGE).job().state(), v1::CANCELLED);
  Message message;
  EXPECT_FALSE(watch->reader->Read(&message));
  EXPECT_TRUE(watch->reader->Finish().ok());
  // And at once when it has ended already.
  auto late = StartWatch("job-1", 0, true);
  EXPECT_EQ(late->Next(Message::CHANGE).job().state(), v1::CANCELLED);
  EXPECT_EQ(late->Next(Message::CHANGE).kind(), Message::KIND_UNSPECIFIED);
  EXPECT_TRUE(late->reader->Finish().ok());
}

TEST_F(ApiStreamTest, WatchersOfAJobThatIsDeletedHearOfItAndThenNoMore) {
  MustCreate();
  MustCreate();
  auto one = StartWatch("job-1", 0);
  EXPECT_EQ(one->Next(Message::CHANGE).job().state(), v1::VALIDATING);
  auto all = StartWatch("", 0);
  all->Next(Message::BOOKMARK);
  Move("job-1", {S::kCancelled});
  EXPECT_EQ(one->Next(Message::CHANGE).job().state(), v1::CANCELLED);
  ASSERT_TRUE(store_
                  ->RemoveJob("job-1", {.message = "deleted by anna"},
                              [](Database*) { return absl::OkStatus(); })
                  .ok());
  for (Watch* watch : {one.get(), all.get()}) {
    const Message message = watch->Next(Message::REMOVED);
    EXPECT_EQ(message.job().name(), "projects/default/fineTuningJobs/job-1");
    EXPECT_EQ(message.job().state(), v1::CANCELLED);
    EXPECT_EQ(message.job().submitted_text(), "");
    EXPECT_EQ(message.job().output_name(), "");
    EXPECT_GT(message.revision(), 0);
  }
  EXPECT_EQ(one->Next(Message::CHANGE).kind(), Message::KIND_UNSPECIFIED);
  EXPECT_TRUE(one->reader->Finish().ok());
  // Others go on.
  Move("job-2", {S::kQueued});
  EXPECT_EQ(all->Next(Message::CHANGE).job().state(), v1::QUEUED);
  all->context.TryCancel();
  auto late = StartWatch("job-1", 0);
  late->Next(Message::CHANGE);
  const grpc::Status status = late->reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "job-1 was deleted");
}

TEST_F(ApiStreamTest, FollowedLogsEndWhereTheirJobIsDeleted) {
  MustCreate();
  const std::string uid = store_->Get("job-1")->uid;
  JobFile(uid, "log") << "one\n";
  grpc::ClientContext context;
  Limit(&context);
  v1::StreamFineTuningJobLogsRequest request;
  request.set_name("job-1");
  request.set_follow(true);
  auto reader = jobs_->StreamFineTuningJobLogs(&context, request);
  v1::StreamFineTuningJobLogsResponse chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  EXPECT_EQ(chunk.data(), "one\n");
  Move("job-1", {S::kCancelled});
  ASSERT_TRUE(
      store_->RemoveJob("job-1", {}, [](Database*) { return absl::OkStatus(); })
          .ok());
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(ApiStreamTest, ProgressComesWithoutARevisionOfItsOwn) {
  MustCreate();
  Move("job-1", {S::kQueued, S::kLoading, S::kRunning});
  auto watch = StartWatch("job-1", 4);
  JobProgress progress{.step = 3, .total_steps = 10};
  progress.loss = 1.25;
  store_->UpdateProgress("job-1", progress);
  const Message message = watch->Next(Message::PROGRESS);
  EXPECT_EQ(message.revision(), 4);
  EXPECT_EQ(message.job().step(), 3);
  EXPECT_EQ(message.job().loss(), 1.25);
  EXPECT_EQ(message.job().state(), v1::RUNNING);
  watch->context.TryCancel();
}

TEST_F(ApiStreamTest, WatchErrors) {
  auto watch = StartWatch("job-9", 0);
  Message message;
  EXPECT_FALSE(watch->reader->Read(&message));
  EXPECT_EQ(watch->reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  watch = StartWatch("", 77);
  EXPECT_FALSE(watch->reader->Read(&message));
  EXPECT_EQ(watch->reader->Finish().error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
  watch = StartWatch("", 0, true);
  EXPECT_FALSE(watch->reader->Read(&message));
  EXPECT_EQ(watch->reader->Finish().error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ApiStreamTest, BelowTheFloorIsOutOfRange) {
  StopServer();
  StartServer({.max_events = 10});
  MustCreate();
  for (int i = 0; i < 256; ++i) {
    ASSERT_TRUE(store_->AddEvent("job-1", "note", "x").ok());
  }
  auto watch = StartWatch("", 5);
  Message message;
  EXPECT_FALSE(watch->reader->Read(&message));
  EXPECT_EQ(watch->reader->Finish().error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(ApiStreamTest, LogsFromTheBeginningAndTheTail) {
  const std::string uid = MustCreate().uid();
  EXPECT_EQ(Logs("job-1", false, 0), "") << "no file yet";
  std::string all;
  for (int i = 0; i < 30000; ++i) all += "line " + std::to_string(i) + "\n";
  JobFile(uid, "log") << all;
  EXPECT_EQ(Logs("job-1", false, 0), all);
  EXPECT_EQ(Logs("job-1", false, 2), "line 29998\nline 29999\n");
  EXPECT_EQ(Logs("job-1", false, 1000000), all);
}

TEST_F(ApiStreamTest, FollowedLogsEndWithTheJob) {
  const std::string uid = MustCreate().uid();
  std::string got;
  std::thread reader([&] { got = Logs("job-1", true, 0); });
  for (const char* text : {"one\n", "two\n"}) {
    JobFile(uid, "log") << text;
  }
  Move("job-1", {S::kFailed});
  reader.join();
  EXPECT_EQ(got, "one\ntwo\n");
}

TEST_F(ApiStreamTest, StepMetricsAreFollowed) {
  const std::string uid = MustCreate().uid();
  JobFile(uid, "metrics.jsonl")
      << "{\"step\":0,\"eval_loss\":3}\n{\"step\":1,\"loss\":2.5,\"tokens\":64}"
      << "\nnot json\n{\"step\":2,\"loss\":2,\"grad_norm\":null,"
      << "\"loss_scale\":32768,\"expert_load\":{\"max_over_mean\":1.5,"
      << "\"layer\":7,\"entropy\":0.5,\"unhit_experts\":2}}\n{\"step\":3,"
      << "\"expert_load\":{\"layer\":1e300},";
  grpc::ClientContext context;
  Limit(&context);
  v1::StreamFineTuningJobMetricsRequest request;
  request.set_name("job-1");
  request.set_follow(true);
  request.set_after_step(-1);
  auto reader = jobs_->StreamFineTuningJobMetrics(&context, request);
  v1::StepMetrics m;
  ASSERT_TRUE(reader->Read(&m));
  EXPECT_EQ(m.eval_loss(), 3);
  EXPECT_FALSE(m.has_loss());
  ASSERT_TRUE(reader->Read(&m));
  EXPECT_EQ(m.tokens(), 64);
  ASSERT_TRUE(reader->Read(&m));
  EXPECT_EQ(m.step(), 2);
  EXPECT_FALSE(m.has_grad_norm());
  EXPECT_EQ(m.loss_scale(), 32768);
  EXPECT_EQ(m.expert_load().max_over_mean(), 1.5);
  EXPECT_EQ(m.expert_load().layer(), 7);
  EXPECT_EQ(m.expert_load().entropy(), 0.5);
  EXPECT_EQ(m.expert_load().unhit_experts(), 2);
  JobFile(uid, "metrics.jsonl") << "\"loss\":1.5}\n";
  ASSERT_TRUE(reader->Read(&m));
  EXPECT_EQ(m.step(), 3);
  EXPECT_FALSE(m.has_expert_load());
  Move("job-1", {S::kCancelled});
  EXPECT_FALSE(reader->Read(&m));
  EXPECT_TRUE(reader->Finish().ok());
}

// A stream that is there before the job runs, over a pause and over a step back
// to a checkpoint: each start of the job replaces the file.
TEST_F(ApiStreamTest, StepMetricsAreFollowedFromTheBeginningAndOverAPause) {
  const std::string uid = MustCreate().uid();
  JobFile(uid, "metrics.jsonl") << "{\"step\":0,\"eval_loss\":9}\n";
  const auto start = [&](const std::string& lines) {
    JobFile(uid, "new") << lines;
    std::filesystem::rename(dir_ / "jobs" / uid / "new",
                            dir_ / "jobs" / uid / "metrics.jsonl");
  };
  grpc::ClientContext context;
  Limit(&context);
  v1::StreamFineTuningJobMetricsRequest request;
  request.set_name("job-1");
  request.set_follow(true);
  request.set_after_step(-1);
  auto reader = jobs_->StreamFineTuningJobMetrics(&context, request);
  const auto next = [&] {
    v1::StepMetrics m;
    if (!reader->Read(&m)) return std::string("end");
    return absl::StrCat(m.step(), m.has_eval_loss() ? " eval " : " loss ",
                        m.has_eval_loss() ? m.eval_loss() : m.loss());
  };
  EXPECT_EQ(next(), "0 eval 9") << "from the first file: the stream is open";
  Move("job-1", {S::kQueued, S::kLoading, S::kRunning});
  start("");
  const auto append = [&](const std::string& lines) {
    JobFile(uid, "metrics.jsonl") << lines;
  };
  append("{\"step\":0,\"eval_loss\":9}\n{\"step\":1,\"loss\":8}\n");
  EXPECT_EQ(next(), "1 loss 8");
  append("{\"step\":2,\"loss\":7}\n{\"step\":2,\"ev");
  EXPECT_EQ(next(), "2 loss 7");
  Move("job-1", {S::kPausing, S::kPaused, S::kQueued, S::kLoading});
  // Step 2 is made again, and this time it is evaluated.
  start("{\"step\":0,\"eval_loss\":9}\n{\"step\":1,\"loss\":8}\n");
  append("{\"step\":2,\"loss\":7}\n{\"step\":2,\"eval_loss\":6}\n");
  append("{\"step\":3,\"loss\":5}\n");
  EXPECT_EQ(next(), "2 eval 6");
  EXPECT_EQ(next(), "3 loss 5");
  Move("job-1", {S::kCancelling, S::kCancelled});
  EXPECT_EQ(next(), "end");
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(ApiStreamTest, ManyWatchersThatReadNothingDontHoldUpOthers) {
  MustCreate();
  std::vector<std::unique_ptr<Watch>> idle;
  for (int i = 0; i < 50; ++i) idle.push_back(StartWatch("", 0));
  auto watch = StartWatch("job-1", 0, true);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(
        store_->AddEvent("job-1", "note", std::string(10000, 'x')).ok());
  }
  Move("job-1", {S::kCancelled});
  Message message;
  v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
  while (watch->reader->Read(&message)) {
    if (message.has_job()) last = message.job().state();
  }
  EXPECT_EQ(last, v1::CANCELLED);
  for (auto& w : idle) w->context.TryCancel();
}

TEST_F(ApiStreamTest, ShutdownEndsOpenStreams) {
  MustCreate();
  auto watch = StartWatch("job-1", 0);
  watch->Next(Message::BOOKMARK);
  server_->Shutdown(absl::ZeroDuration());
  Message message;
  while (watch->reader->Read(&message)) {
  }
  EXPECT_FALSE(watch->reader->Finish().ok());
}

}  // namespace
}  // namespace roundhouse
