// TraceFineTuningJob through the gRPC server, over an engine whose traces the
// test moves on.
#include "server/api/trace_stream.h"

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

class TraceStreamTest : public ApiTestFixture {
 protected:
  void SetUp() override {
    ApiTestFixture::SetUp();
    MustCreate();  // job-1
  }
  auto Begin(const std::string& name, int steps) {
    Limit(&context_);
    v1::TraceFineTuningJobRequest request;
    request.set_name(name);
    request.set_steps(steps);
    return jobs_->TraceFineTuningJob(&context_, request);
  }
  grpc::Status Refusal(const std::string& name, int steps) {
    grpc::ClientContext context;
    Limit(&context);
    v1::TraceFineTuningJobRequest request;
    request.set_name(name);
    request.set_steps(steps);
    const auto reader = jobs_->TraceFineTuningJob(&context, request);
    v1::TraceFineTuningJobResponse message;
    EXPECT_FALSE(reader->Read(&message));
    return reader->Finish();
  }
  grpc::ClientContext context_;
};

std::shared_ptr<Trace> Example(size_t intervals) {
  auto trace = std::make_shared<Trace>();
  trace->jobs = {"job-1", "job-2"};
  trace->first_step = 4;
  trace->step_count = 2;
  trace->ended_early = "the job is PAUSED";
  trace->start_time = absl::FromUnixSeconds(100);
  trace->started_ns = 5000;
  trace->copies_left_out = 6;
  trace->devices.resize(2);
  trace->devices[1] = {.started_ns = 4000,
                       .ended_ns = 9000,
                       .times = {.compute_ns = 1, .bubble_ns = 2}};
  trace->devices[0] = {.started_ns = 5000, .ended_ns = 8000};
  for (size_t i = 0; i < intervals; ++i) {
    const auto at = static_cast<int64_t>(5000 + i);
    trace->intervals.push_back({.track = TraceTrack::kH2D,
                                .device = 1,
                                .kind = "weights",
                                .layer_begin = 2,
                                .layer_end = 3,
                                .job = 1,
                                .step = 4,
                                .slot = 9,
                                .started_ns = at,
                                .ended_ns = at + 1,
                                .bytes = 64});
  }
  trace->intervals.push_back({.track = TraceTrack::kOptimizer,
                              .kind = "optimizer",
                              .unit = 0,
                              .job = 0,
                              .started_ns = 5000,
                              .ended_ns = 5100});
  return trace;
}

TEST_F(TraceStreamTest, StepsAndThenTheTraceInParts) {
  MustCreate();  // job-2, whose owner asks
  const auto reader = Begin("job-1", 3);
  const auto task = engine_->AwaitTraceTask();
  EXPECT_EQ(engine_->trace_request(), "job-1 3");
  v1::TraceFineTuningJobResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.steps(), 0);
  task->SetSteps(1);
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.steps(), 1);
  EXPECT_FALSE(message.has_timeline());
  const size_t intervals = 2 * kMaxPartIntervals;
  task->Finish(std::shared_ptr<const Trace>(Example(intervals)));
  v1::TraceFineTuningJobResponse whole;
  int parts = 0;
  for (; reader->Read(&message); ++parts) whole.MergeFrom(message);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(parts, 4);  // without intervals, two full ones, one interval
  EXPECT_EQ(whole.steps(), 2);
  EXPECT_EQ(whole.first_step(), 4);
  EXPECT_EQ(whole.ended_early(), "the job is PAUSED");
  EXPECT_EQ(whole.copies_left_out(), 6);
  // The timeline begins with the first device: 1 us before the trace.
  EXPECT_EQ(whole.start_time().seconds(), 99);
  EXPECT_EQ(whole.start_time().nanos(), 999'999'000);
  ASSERT_EQ(whole.devices_size(), 2);
  EXPECT_EQ(whole.devices(0).start_ns(), 1000);
  EXPECT_EQ(whole.devices(1).start_ns(), 0);
  EXPECT_EQ(whole.devices(1).end_ns(), 5000);
  EXPECT_EQ(whole.devices(1).compute_ns(), 1);
  EXPECT_EQ(whole.devices(1).bubble_ns(), 2);
  const v1::Timeline& timeline = whole.timeline();
  ASSERT_EQ(timeline.intervals_size(), static_cast<int>(intervals) + 1);
  const v1::TimelineInterval& copy = timeline.intervals(7);
  EXPECT_EQ(timeline.resources(copy.resource()), "h2d:1");
  EXPECT_EQ(timeline.kinds(copy.kind()), "weights");
  EXPECT_EQ(timeline.jobs(copy.job()), "job-2");
  EXPECT_EQ(copy.layer_begin(), 2);
  EXPECT_EQ(copy.start_ns(), 1007);
  EXPECT_EQ(copy.length_ns(), 1);
  EXPECT_EQ(copy.bytes(), 64);
  EXPECT_EQ(copy.step(), 4);
  EXPECT_EQ(copy.slot(), 9);
  EXPECT_FALSE(copy.has_unit());
  const v1::TimelineInterval& update = timeline.intervals(intervals);
  EXPECT_EQ(timeline.resources(update.resource()), "host:optimizer");
  EXPECT_TRUE(update.has_unit());
  EXPECT_EQ(update.micro_batch(), -1);
}

// Behind all others, and only where it is used: clients of before know none.
TEST(TracePartsTest, BackfillHasTracksOfItsOwn) {
  const auto every = [](const std::string&) { return true; };
  v1::TraceFineTuningJobResponse without, head, rest;
  ASSERT_TRUE(TraceParts(Example(1), every).Next(&without));
  const int others = without.timeline().resources_size();
  EXPECT_EQ(without.timeline().resources(others - 1), "host:steps");
  auto trace = std::make_shared<Trace>(*Example(1));
  TraceInterval& interval = trace->intervals[0];
  interval.track = TraceTrack::kBackfill;
  interval.device = static_cast<int>(trace->devices.size()) - 1;
  TraceParts parts(trace, every);
  ASSERT_TRUE(parts.Next(&head));
  ASSERT_TRUE(parts.Next(&rest));
  const int resource = rest.timeline().intervals(0).resource();
  EXPECT_EQ(resource, head.timeline().resources_size() - 1);
  EXPECT_EQ(head.timeline().resources(resource),
            absl::StrCat("backfill:", interval.device));
  EXPECT_GE(resource, others);
}

TEST(TracePartsTest, OfAJobThatIsNotShownItHasTheTimesAlone) {
  TraceParts parts(Example(1),
                   [](const std::string& id) { return id == "job-1"; });
  v1::TraceFineTuningJobResponse head, rest;
  ASSERT_TRUE(parts.Next(&head));
  ASSERT_TRUE(parts.Next(&rest));
  EXPECT_EQ(head.timeline().jobs(1), "job-2");
  const v1::TimelineInterval& copy = rest.timeline().intervals(0);
  EXPECT_EQ(copy.job(), 1);
  EXPECT_EQ(copy.length_ns(), 1);
  EXPECT_EQ(head.timeline().kinds(copy.kind()), "other");
  EXPECT_EQ(copy.layer_end(), 0);
  EXPECT_EQ(copy.micro_batch(), -1);
  EXPECT_EQ(copy.bytes(), 0);
  EXPECT_EQ(copy.step(), 0);
  EXPECT_EQ(copy.slot(), 0);
  EXPECT_FALSE(copy.has_unit());
  EXPECT_TRUE(rest.timeline().intervals(1).has_unit());
}

TEST_F(TraceStreamTest, ItsErrorIsTheCalls) {
  const auto reader = Begin("projects/default/fineTuningJobs/job-1", 100);
  const auto task = engine_->AwaitTraceTask();
  EXPECT_EQ(engine_->trace_request(), "job-1 100");
  task->Finish(absl::ResourceExhaustedError("ask for fewer steps"));
  v1::TraceFineTuningJobResponse message;
  while (reader->Read(&message)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "ask for fewer steps");
}

TEST_F(TraceStreamTest, ACallThatIsGoneEndsTheRecording) {
  const auto reader = Begin("job-1", 1);
  const auto task = engine_->AwaitTraceTask();
  EXPECT_FALSE(task->cancelled());
  context_.TryCancel();
  v1::TraceFineTuningJobResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (!task->cancelled()) std::this_thread::yield();
}

TEST_F(TraceStreamTest, BadRequestsAskNobody) {
  for (const int steps : {-1, 0, 101}) {
    const grpc::Status status = Refusal("job-1", steps);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message().rfind("steps: ", 0), 0u)
        << status.error_message();
  }
  EXPECT_EQ(Refusal("", 3).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(engine_->trace_request(), "");
}

}  // namespace
}  // namespace roundhouse
