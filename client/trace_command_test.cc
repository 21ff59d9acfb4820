// `roundhouse trace` against a server on a Unix socket.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class TraceCommandTest : public ClientTest {
 protected:
  TraceCommandTest() {
    steps_.set_steps(1);
    head_.set_steps(2);
    head_.set_first_step(7);
    v1::TracedDevice* const device = head_.add_devices();
    device->set_end_ns(2'000'000'000);
    device->set_compute_ns(1'500'000'000);
    device->set_bubble_ns(500'000'000);
    head_.mutable_timeline()->add_resources("wait:0");
    head_.mutable_timeline()->add_kinds("optimizer");
    head_.mutable_timeline()->add_jobs("job-7");
    part_.set_steps(2);
    v1::TimelineInterval* const wait =
        part_.mutable_timeline()->add_intervals();
    wait->set_micro_batch(-1);
    wait->set_length_ns(1000);
    wait->set_job(0);
    wait->set_step(7);
    wait->set_slot(9);
    server_.answers().trace = [this](const v1::TraceFineTuningJobRequest& asked,
                                     const SendTrace& send) {
      asked_ = asked;
      send(steps_);
      send(head_);
      send(part_);
      return grpc::Status::OK;
    };
  }

  v1::TraceFineTuningJobRequest asked_;
  v1::TraceFineTuningJobResponse steps_, head_, part_;
};

TEST_F(TraceCommandTest, WritesWhatPerfettoReadsAndSaysTheShares) {
  const std::string path = WriteFile("trace.json", "old");
  EXPECT_EQ(Run({"trace", "job-7", "--steps=2", "--output", path}),
            ExitCode::kOk)
      << err();
  EXPECT_EQ(asked_.name(), "job-7");
  EXPECT_EQ(asked_.steps(), 2);
  const auto trace = nlohmann::json::parse(Read(path));
  const auto& event = trace["traceEvents"].back();
  EXPECT_EQ(event["name"], "optimizer");
  EXPECT_EQ(event["dur"], 1.0);
  EXPECT_EQ(event["args"]["job"], "job-7");
  EXPECT_EQ(event["args"]["step"], 7);
  EXPECT_EQ(event["args"]["slot"], 9);
  EXPECT_FALSE(event["args"].contains("layer_begin"));
  EXPECT_EQ(trace["otherData"]["first_step"], 7);
  EXPECT_EQ(trace["otherData"]["devices"][0]["bubble_ns"], 500'000'000);
  EXPECT_EQ(out(),
            "DEVICE  SECONDS  COMPUTE  BUBBLE  IDLE\n"
            "0       2.000    75.0%    25.0%   0.0%\n");
  EXPECT_EQ(err(), "trace of steps 7-8: " + path + " (for ui.perfetto.dev)\n");
}

TEST_F(TraceCommandTest, ByDefaultThreeStepsIntoAFileOfTheJob) {
  const auto folder = std::filesystem::path(WriteFile("x", "")).parent_path();
  std::filesystem::current_path(folder);
  EXPECT_EQ(
      Run({"trace", "projects/default/fineTuningJobs/job-7", "-o", "name"}),
      ExitCode::kOk)
      << err();
  EXPECT_EQ(asked_.steps(), 3);
  EXPECT_EQ(out(), "trace-job-7.json\n");
  EXPECT_TRUE(std::filesystem::exists(folder / "trace-job-7.json"));
}

TEST_F(TraceCommandTest, ADashIsStandardOutput) {
  EXPECT_EQ(Run({"trace", "job-7", "--output=-"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["otherData"]["steps"], 2);
  EXPECT_EQ(err(), "");
}

TEST_F(TraceCommandTest, AnEarlyEndIsSaid) {
  head_.set_ended_early("the job is PAUSED");
  head_.set_copies_left_out(5);
  EXPECT_EQ(Run({"trace", "job-7", "--output=-"}), ExitCode::kOk);
  EXPECT_EQ(err(),
            "roundhouse: trace: 2 of 3 steps: the job is PAUSED\n"
            "roundhouse: trace: 5 copies of slots with too many are left "
            "out\n");
}

TEST_F(TraceCommandTest, ATerminalSeesTheSteps) {
  environment_.err_is_terminal = true;
  EXPECT_EQ(Run({"trace", "job-7", "--output=-"}), ExitCode::kOk);
  EXPECT_EQ(err().rfind("\r\x1b[K1 of 3 steps", 0), 0u) << err();
}

TEST_F(TraceCommandTest, ErrorsWriteNothing) {
  server_.answers().trace = [](const auto&, const auto&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "not RUNNING");
  };
  const std::string path = WriteFile("kept.json", "old");
  EXPECT_EQ(Run({"trace", "job-7", "--output=" + path}),
            ExitCode::kPrecondition);
  EXPECT_TRUE(Has(err(), "trace job-7: FAILED_PRECONDITION: not RUNNING"));
  EXPECT_EQ(Read(path), "old");
}

TEST_F(TraceCommandTest, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_EQ(Run({"trace", "job-7", "--output=/nowhere/trace.json"}),
            ExitCode::kError);
  EXPECT_TRUE(Has(err(), "/nowhere/trace.json")) << err();
}

TEST_F(TraceCommandTest, CtrlCEndsTheRecording) {
  server_.answers().trace = [this](const auto&, const auto& send) {
    interrupt_.Request();
    while (send(v1::TraceFineTuningJobResponse())) std::this_thread::yield();
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"trace", "job-7", "--output=-"}), ExitCode::kDetached);
  EXPECT_EQ(out(), "");
}

TEST_F(TraceCommandTest, UsageErrors) {
  EXPECT_EQ(Run({"trace"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"trace", "a", "--steps=0"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"trace", "a", "--steps=101"}), ExitCode::kUsage);
  EXPECT_TRUE(Has(err(), "at most 100")) << err();
}

}  // namespace
}  // namespace roundhouse::client
