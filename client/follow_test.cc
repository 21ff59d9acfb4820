// submit and watch, which follow a job.
#include "client/follow.h"

#include <mutex>
#include <nlohmann/json.hpp>

#include "client/testing/bad_request.h"
#include "client/testing/client_fixture.h"

namespace roundhouse::client {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class FollowTest : public ClientTest {
 protected:
  FollowTest() : file_(WriteFile("job.yaml", "seed: 1\n")) {
    server_.answers().create = [this](const auto& request,
                                      v1::FineTuningJob* job) {
      std::lock_guard<std::mutex> lock(mutex_);
      creates_.push_back(request);
      if (create_failures_ > 0) {
        --create_failures_;
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "starting");
      }
      *job = MakeJob(v1::VALIDATING);
      return grpc::Status::OK;
    };
    server_.answers().get = [this](const std::string&, v1::FineTuningJob* job) {
      *job = ended_;
      return grpc::Status::OK;
    };
    server_.answers().logs =
        [](const v1::StreamFineTuningJobLogsRequest& request,
           const SendLog& send) {
          EXPECT_EQ(request.tail_lines(), kFailedLogLines);
          send("worker 1: loss is nan\n");
          return grpc::Status::OK;
        };
  }

  // Every watch sees the job run and end like this.
  void EndsAs(v1::JobState state) {
    ended_ = MakeJob(state);
    server_.answers().watch = [this, state](const auto& request,
                                            const SendWatch& send) {
      std::lock_guard<std::mutex> lock(mutex_);
      watches_.push_back(request);
      v1::WatchFineTuningJobsResponse running = MakeChange(1, v1::RUNNING);
      running.mutable_job()->set_step(1);
      running.mutable_job()->set_total_steps(2);
      running.mutable_job()->set_loss(1.5);
      send(running);
      send(MakeChange(2, state));
      return grpc::Status::OK;
    };
  }

  const std::string file_;
  std::mutex mutex_;
  int create_failures_ = 0;
  std::vector<v1::CreateFineTuningJobRequest> creates_;
  std::vector<v1::WatchFineTuningJobsRequest> watches_;
  v1::FineTuningJob ended_;
};

TEST_F(FollowTest, SubmitSendsTheFileAndPrintsTheName) {
  EXPECT_EQ(Run({"submit", "-f", file_}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1\n");
  EXPECT_EQ(err(), "");
  ASSERT_EQ(creates_.size(), 1u);
  EXPECT_EQ(creates_[0].text(), "seed: 1\n");
  EXPECT_EQ(creates_[0].file_name(), file_);
  EXPECT_EQ(creates_[0].request_id().size(), 32u);
  EXPECT_FALSE(creates_[0].validate_only());
  EXPECT_EQ(Run({"submit", "-f", file_, "-o", "name", "--request-id=mine"}),
            ExitCode::kOk);
  EXPECT_EQ(out(), "projects/default/fineTuningJobs/a1\n");
  EXPECT_EQ(creates_[1].request_id(), "mine");
  EXPECT_EQ(Run({"submit", "-f", file_, "-o", "json"}), ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["state"], "VALIDATING");
  EXPECT_NE(creates_[2].request_id(), creates_[0].request_id());
  EXPECT_EQ(creates_[2].priority(), v1::JOB_PRIORITY_UNSPECIFIED);
  EXPECT_EQ(Run({"submit", "-f", file_, "--priority=urgent"}), ExitCode::kOk);
  EXPECT_EQ(creates_[3].priority(), v1::URGENT);
  EXPECT_EQ(Run({"submit", "-f", file_, "--priority=late"}), ExitCode::kUsage);
}

TEST_F(FollowTest, SubmitRetriesWithTheSameRequestId) {
  create_failures_ = 3;
  EXPECT_EQ(Run({"submit", "-f", file_}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1\n");
  ASSERT_EQ(creates_.size(), 4u);
  for (const auto& create : creates_) {
    EXPECT_EQ(create.request_id(), creates_[0].request_id());
    EXPECT_EQ(create.text(), creates_[0].text());
  }
}

TEST_F(FollowTest, SubmitGivesUpAndTellsTheRequestId) {
  create_failures_ = 100;
  EXPECT_EQ(Run({"submit", "-f", file_, "--server", server_.address()}),
            ExitCode::kUnavailable);
  EXPECT_EQ(creates_.size(), 4u);
  EXPECT_TRUE(Has(err(), "roundhouse --server " + server_.address() +
                             " submit -f " + file_ + " --request-id " +
                             creates_[0].request_id()))
      << err();
  EXPECT_EQ(out(), "");
}

TEST_F(FollowTest, ARefusedFileIsNotSentAgain) {
  int calls = 0;
  server_.answers().create = [&calls](const auto&, auto*) {
    ++calls;
    return BadRequestStatus("the job file has errors", "learning_rat",
                            "unknown field; did you mean learning_rate?");
  };
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kError);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(Has(err(),
                  "\n  learning_rat: unknown field; did you mean "
                  "learning_rate?\n"))
      << err();
  EXPECT_FALSE(Has(err(), "--request-id")) << err();
}

TEST_F(FollowTest, FilesThatCannotBeSent) {
  EXPECT_EQ(Run({"submit", "-f", "/nonexistent/job.yaml"}), ExitCode::kError);
  EXPECT_TRUE(Has(err(), "/nonexistent/job.yaml: cannot be opened")) << err();
  EXPECT_EQ(Run({"submit", "-f", testing::TempDir()}), ExitCode::kError);
  EXPECT_TRUE(Has(err(), "cannot be read")) << err();
  const std::string large =
      WriteFile("large.yaml", std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(Run({"submit", "-f", large}), ExitCode::kError);
  EXPECT_TRUE(Has(err(), "longer than the limit of 1048576 bytes (1.0 MiB)\n"))
      << err();
  EXPECT_TRUE(creates_.empty());
}

TEST_F(FollowTest, DryRunShowsTheServersAnswer) {
  server_.answers().create = [](const auto& request, v1::FineTuningJob* job) {
    EXPECT_TRUE(request.validate_only());
    job->set_resolved_spec(R"({"seed":1,"method":"lora","batch_size":8})");
    job->mutable_needs()->set_parameters(1234);
    v1::DatasetSpan* span = job->mutable_sample()->add_spans();
    span->set_text("answer");
    span->set_trained(true);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"submit", "-f", file_, "--dry-run"}), ExitCode::kOk);
  EXPECT_TRUE(Has(out(), "\nmethod:  ")) << out();
  EXPECT_TRUE(Has(out(), "1.2k, trained: 0")) << out();
  EXPECT_TRUE(Has(out(), "[[answer]]")) << out();
  EXPECT_TRUE(Has(err(), "no job was made")) << err();
  EXPECT_EQ(Run({"submit", "-f", file_, "--dry-run", "-o", "json"}),
            ExitCode::kOk);
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ(json["needs"]["parameters"], 1234);
  EXPECT_EQ(json["sample"]["spans"][0]["text"], "answer");
  server_.answers().create = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "comes later");
  };
  EXPECT_EQ(Run({"submit", "-f", file_, "--dry-run"}), ExitCode::kError);
  EXPECT_TRUE(Has(err(), "comes later")) << err();
}

TEST_F(FollowTest, WaitForSuccess) {
  EndsAs(v1::SUCCEEDED);
  ended_.set_step(2);
  ended_.set_output_path("/out/a1");
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kOk);
  EXPECT_EQ(out(), "a1\n");
  EXPECT_EQ(err(),
            "RUNNING step 1/2, loss 1.5000\n"
            "SUCCEEDED\n"
            "a1 succeeded: 2 steps\n"
            "output: /out/a1\n");
  ASSERT_EQ(watches_.size(), 1u);
  EXPECT_EQ(watches_[0].name(), "projects/default/fineTuningJobs/a1");
  EXPECT_TRUE(watches_[0].until_final());
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait", "-o", "json"}),
            ExitCode::kOk);
  EXPECT_EQ(nlohmann::json::parse(out())["output_path"], "/out/a1");
}

TEST_F(FollowTest, WaitForAFailureShowsReasonAndLog) {
  EndsAs(v1::FAILED);
  ended_.set_step(1);
  ended_.set_reason(v1::NON_FINITE_LOSS);
  ended_.set_message("step 1");
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kJobFailed);
  EXPECT_TRUE(Has(err(),
                  "a1 failed at step 1: NON_FINITE_LOSS: step 1\n"
                  "The end of its log:\nworker 1: loss is nan\n"))
      << err();
}

// The state's line has it, and the last one.
TEST_F(FollowTest, ALogThatIsTheReasonIsNotShown) {
  EndsAs(v1::FAILED);
  ended_.set_reason(v1::INVALID_DATASET);
  ended_.set_message("/d/a\x1b.jsonl:2: not JSON");
  std::string before;
  server_.answers().logs = [&before](const auto&, const SendLog& send) {
    send(before);
    send("2026-01-02T03:04:05Z FAILED INVALID_DATASET: ");
    send("/d/a\\x1b.jsonl:2: not JSON\n");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kJobFailed);
  EXPECT_TRUE(Has(err(),
                  "a1 failed at step 0: INVALID_DATASET: "
                  "/d/a\\x1b.jsonl:2: not JSON\n"))
      << err();
  EXPECT_FALSE(Has(err(), "log")) << err();
  before = "2026-01-02T03:04:05Z WARNING: beware\n";
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kJobFailed);
  EXPECT_TRUE(Has(err(), "The end of its log:\n" + before)) << err();
}

TEST_F(FollowTest, WaitForACancelledJob) {
  EndsAs(v1::CANCELLED);
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kCancelled);
  EXPECT_TRUE(Has(err(), "a1 was cancelled at step 0\n")) << err();
}

TEST_F(FollowTest, ATerminalGetsABarAndNoColorMeansNone) {
  EndsAs(v1::SUCCEEDED);
  environment_.err_is_terminal = true;
  variables_["TERM"] = "xterm";
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kOk);
  EXPECT_TRUE(Has(err(), "\r\x1b[J\x1b[36mRUNNING\x1b[0m  [")) << err();
  variables_["NO_COLOR"] = "1";
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kOk);
  EXPECT_TRUE(Has(err(), "\r\x1b[JRUNNING  [")) << err();
  EXPECT_FALSE(Has(err(), "\x1b[36m")) << err();
}

TEST_F(FollowTest, WatchWritesItsLinesToOut) {
  EndsAs(v1::SUCCEEDED);
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(), "RUNNING step 1/2, loss 1.5000\nSUCCEEDED\n");
  EXPECT_EQ(Run({"watch", "a1", "-o", "json"}), ExitCode::kOk);
  std::istringstream lines(out());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(nlohmann::json::parse(line)["loss"], 1.5);
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(nlohmann::json::parse(line)["state"], "SUCCEEDED");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(FollowTest, ABrokenWatchGoesOnAfterTheLastRevision) {
  ended_ = MakeJob(v1::SUCCEEDED);
  server_.answers().watch = [this](const auto& request, const SendWatch& send) {
    std::lock_guard<std::mutex> lock(mutex_);
    watches_.push_back(request);
    switch (watches_.size()) {
      case 1: {
        send(MakeChange(7, v1::LOADING));
        v1::WatchFineTuningJobsResponse bookmark;
        bookmark.set_kind(v1::WatchFineTuningJobsResponse::BOOKMARK);
        bookmark.set_revision(9);
        send(bookmark);
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
      }
      case 2:
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
      case 3:
        send(MakeChange(10, v1::RUNNING));
        return grpc::Status::OK;
      default:
        send(MakeChange(11, v1::SUCCEEDED));
        return grpc::Status::OK;
    }
  };
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kOk);
  EXPECT_EQ(out(), "LOADING\nRUNNING\nSUCCEEDED\n");
  ASSERT_EQ(watches_.size(), 4u);
  EXPECT_EQ(watches_[0].from_revision(), 0);
  EXPECT_EQ(watches_[1].from_revision(), 9);
  EXPECT_EQ(watches_[2].from_revision(), 9);
  EXPECT_EQ(watches_[3].from_revision(), 10);
  EXPECT_TRUE(Has(err(), "the connection broke: restarting; trying again"))
      << err();
}

TEST_F(FollowTest, AForgottenRevisionStartsFromThePresent) {
  ended_ = MakeJob(v1::SUCCEEDED);
  server_.answers().watch = [this](const auto& request, const SendWatch& send) {
    std::lock_guard<std::mutex> lock(mutex_);
    watches_.push_back(request);
    if (watches_.size() == 2) {
      return grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "compacted");
    }
    send(MakeChange(5, watches_.size() == 1 ? v1::RUNNING : v1::SUCCEEDED));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kOk);
  ASSERT_EQ(watches_.size(), 3u);
  EXPECT_EQ(watches_[1].from_revision(), 5);
  EXPECT_EQ(watches_[2].from_revision(), 0);
}

TEST_F(FollowTest, AWatchThatCannotGoOnSaysHowToComeBack) {
  server_.answers().watch = [this](const auto& request, const SendWatch&) {
    std::lock_guard<std::mutex> lock(mutex_);
    watches_.push_back(request);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "down");
  };
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kUnavailable);
  EXPECT_EQ(watches_.size(), 4u);
  EXPECT_TRUE(Has(err(), "\nCome back with: roundhouse watch a1\n")) << err();
  // Nobody has shown that there is such a job.
  EXPECT_FALSE(Has(err(), "goes on")) << err();
}

TEST_F(FollowTest, AServerThatIsNotThereIsSaidOnce) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"watch", "a1"}, {"logs", "-f", "a1"}}) {
    std::vector<std::string> words = args;
    words.push_back("--server=unix:/tmp/roundhouse-none");
    EXPECT_EQ(Run(words), ExitCode::kUnavailable);
    const std::string first =
        "roundhouse: no answer from unix:/tmp/roundhouse-none: No such file or "
        "directory; trying again\nroundhouse: " +
        args[0] + " a1: no answer from ";
    EXPECT_EQ(err().substr(0, first.size()), first);
    EXPECT_FALSE(Has(err(), "broke")) << err();
    EXPECT_FALSE(Has(err(), "goes on")) << err();
  }
}

TEST_F(FollowTest, ABreakIsSaidAgainWhenSomethingHasCome) {
  ended_ = MakeJob(v1::SUCCEEDED);
  server_.answers().watch = [this](const auto& request, const SendWatch& send) {
    std::lock_guard<std::mutex> lock(mutex_);
    watches_.push_back(request);
    if (watches_.size() == 3) send(MakeChange(7, v1::RUNNING));
    if (watches_.size() == 5) send(MakeChange(8, v1::SUCCEEDED));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
  };
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kOk);
  EXPECT_EQ(err(),
            "roundhouse: the connection broke: restarting; trying again\n"
            "roundhouse: the connection broke: restarting; trying again\n"
            "a1 succeeded: 0 steps\n");
}

TEST_F(FollowTest, AJobThatWasSeenGoesOn) {
  server_.answers().watch = [](const auto& request, const SendWatch& send) {
    if (request.from_revision() == 0) send(MakeChange(7, v1::RUNNING));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "down");
  };
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kUnavailable);
  EXPECT_TRUE(Has(err(),
                  "\nThe job goes on without this client.  Come back "
                  "with: roundhouse watch a1\n"))
      << err();
}

TEST_F(FollowTest, AnUnknownJobIsNotTriedAgain) {
  server_.answers().watch = [this](const auto& request, const SendWatch&) {
    std::lock_guard<std::mutex> lock(mutex_);
    watches_.push_back(request);
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job a1");
  };
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kNotFound);
  EXPECT_EQ(watches_.size(), 1u);
}

TEST_F(FollowTest, AnInterruptLeavesTheJobAlone) {
  server_.answers().watch = [this](const auto&, const SendWatch& send) {
    send(MakeChange(1, v1::RUNNING));
    interrupt_.Request();
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"submit", "-f", file_, "--wait"}), ExitCode::kDetached);
  EXPECT_EQ(out(), "a1\n");
  EXPECT_TRUE(Has(err(), "Come back with: roundhouse watch a1\n")) << err();
  EXPECT_TRUE(Has(err(), "Stop it with: roundhouse cancel a1\n")) << err();
}

TEST_F(FollowTest, WatchOfAllShowsTheirChanges) {
  server_.answers().watch = [this](const auto& request, const SendWatch& send) {
    EXPECT_EQ(request.name(), "");
    send(MakeChange(1, v1::RUNNING));
    v1::WatchFineTuningJobsResponse progress = MakeChange(1, v1::RUNNING);
    progress.set_kind(v1::WatchFineTuningJobsResponse::PROGRESS);
    send(progress);
    send(MakeChange(2, v1::SUCCEEDED));
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "enough");
  };
  EXPECT_EQ(Run({"watch"}), ExitCode::kAuth);
  EXPECT_EQ(out(), "a1 RUNNING\na1 SUCCEEDED\n");
}

v1::WatchFineTuningJobsResponse MakeRemoved(int64_t revision,
                                            v1::JobState state) {
  v1::WatchFineTuningJobsResponse message = MakeChange(revision, state);
  message.set_kind(v1::WatchFineTuningJobsResponse::REMOVED);
  return message;
}

TEST_F(FollowTest, AWatchedJobThatIsDeletedHasEnded) {
  server_.answers().watch = [](const auto&, const SendWatch& send) {
    send(MakeChange(1, v1::RUNNING));
    send(MakeRemoved(3, v1::FAILED));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kJobFailed);
  EXPECT_EQ(err(), "a1 ended FAILED and was deleted\n");
  // Deleted between its end and the look at it.
  server_.answers().watch = [](const auto&, const SendWatch& send) {
    send(MakeChange(2, v1::SUCCEEDED));
    return grpc::Status::OK;
  };
  server_.answers().get = [](const std::string&, v1::FineTuningJob*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "a1 was deleted");
  };
  EXPECT_EQ(Run({"watch", "a1"}), ExitCode::kOk);
  EXPECT_EQ(err(), "a1 ended SUCCEEDED and was deleted\n");
}

TEST_F(FollowTest, WatchOfAllShowsWhatIsDeleted) {
  server_.answers().watch = [](const auto&, const SendWatch& send) {
    send(MakeRemoved(1, v1::SUCCEEDED));
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "enough");
  };
  EXPECT_EQ(Run({"watch"}), ExitCode::kAuth);
  EXPECT_EQ(out(), "a1 was deleted\n");
  EXPECT_EQ(Run({"watch", "-o", "name"}), ExitCode::kAuth);
  EXPECT_EQ(out(), "projects/default/fineTuningJobs/a1\n");
  EXPECT_EQ(Run({"watch", "-o", "json"}), ExitCode::kAuth);
  EXPECT_EQ(nlohmann::json::parse(out())["removed"], true);
}

}  // namespace
}  // namespace roundhouse::client
