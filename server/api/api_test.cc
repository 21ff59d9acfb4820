// Unary calls, errors, health, reflection and the socket.
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"
#include "proto/grpc_health/health.grpc.pb.h"
#include "server/api/api_test_fixture.h"

namespace roundhouse {
namespace {

class ApiTest : public ApiTestFixture {
 protected:
  grpc::Status CreateText(const std::string& text) {
    v1::CreateFineTuningJobRequest request;
    request.set_text(text);
    request.set_file_name("job.yaml");
    v1::FineTuningJob job;
    return Create(request, &job);
  }
  grpc::Status Get(const std::string& name, v1::FineTuningJob* job) {
    grpc::ClientContext context;
    Limit(&context);
    v1::GetFineTuningJobRequest request;
    request.set_name(name);
    return jobs_->GetFineTuningJob(&context, request, job);
  }
  grpc::Status List(const v1::ListFineTuningJobsRequest& request,
                    v1::ListFineTuningJobsResponse* response) {
    grpc::ClientContext context;
    Limit(&context);
    return jobs_->ListFineTuningJobs(&context, request, response);
  }
  // A model, and a helper that shows one sample.
  void SetUpDryRun(v1::CreateFineTuningJobRequest* request) {
    std::filesystem::create_directories(dir_ / "model");
    std::ofstream(dir_ / "model/tokenizer.json") << "{}";
    std::ofstream(dir_ / "helper")
        << "cat <<'E'\n"
        << R"({"format": "text", "rows": 5, "whole": true, "warnings": [],)"
        << R"( "samples": [{"line": 3, "tokens": 5,)"
        << R"( "target_tokens": 2, "spans": [{"text": "a", "trained": true}]}]})"
        << "\nE\n";
    request->set_text(
        absl::StrCat("model: ", dir_.string(), "/model\ndataset: d\n"));
  }
};

// The first detail of type Detail in grpc-status-details-bin.
template <typename Detail>
std::optional<Detail> Find(const grpc::Status& status) {
  google::rpc::Status all;
  EXPECT_TRUE(all.ParseFromString(status.error_details()));
  EXPECT_EQ(all.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(all.message(), status.error_message());
  for (const auto& any : all.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

std::string Reason(const grpc::Status& status) {
  const auto info = Find<google::rpc::ErrorInfo>(status);
  if (!info.has_value()) return "no ErrorInfo";
  EXPECT_EQ(info->domain(), "roundhouse");
  return info->reason();
}

TEST_F(ApiTest, CreateGetList) {
  const v1::FineTuningJob made = MustCreate();
  EXPECT_EQ(made.name(), "projects/default/fineTuningJobs/job-1");
  EXPECT_EQ(made.state(), v1::VALIDATING);
  EXPECT_EQ(made.submitted_text(), kJobText);
  EXPECT_TRUE(absl::StrContains(made.resolved_spec(), "\"seed\": 42"));
  for (const std::string& name : {made.name(), std::string("job-1")}) {
    v1::FineTuningJob got;
    ASSERT_TRUE(Get(name, &got).ok());
    EXPECT_EQ(got.uid(), made.uid());
  }
  v1::ListFineTuningJobsResponse list;
  ASSERT_TRUE(List({}, &list).ok());
  ASSERT_EQ(list.jobs_size(), 1);
  EXPECT_EQ(list.jobs(0).uid(), made.uid());
  EXPECT_EQ(list.jobs(0).submitted_text(), "");
  EXPECT_EQ(list.revision(), 1);
}

TEST_F(ApiTest, NothingIsAcknowledgedThatIsNotKept) {
  kept_submits_ = 0;
  const grpc::Status refused = CreateText(kJobText);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(refused), "STATE_DIRECTORY_GONE");
  EXPECT_EQ(refused.error_message(), "put it back");
  EXPECT_EQ(engine_->submits(), 0);
  // It goes while the job is being stored.
  kept_submits_ = 1;
  EXPECT_EQ(CreateText(kJobText).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(engine_->submits(), 1);
  // What is there can be read.
  v1::ListFineTuningJobsResponse list;
  EXPECT_TRUE(List({}, &list).ok());
}

TEST_F(ApiTest, GetHasTheHistories) {
  const v1::FineTuningJob job = MustCreate();
  {
    std::ofstream file = JobFile(job.uid(), "metrics.jsonl");
    file << "{\"step\": 0, \"eval_loss\": 2.0}\n";
    for (int i = 1; i <= 1200; ++i) {
      file << "{\"step\": " << i << ", \"loss\": " << i << ".5}\n";
    }
    file << "{\"step\": 1100, \"loss\": 7}\n{\"step\": 1101, \"lo";
  }
  v1::FineTuningJob got;
  ASSERT_TRUE(Get("job-1", &got).ok());
  ASSERT_EQ(got.loss_history_size(), 900);
  EXPECT_EQ(got.loss_history(899).step(), 1100);
  EXPECT_EQ(got.loss_history(899).loss(), 7);
  EXPECT_EQ(got.loss_history(898).step(), 1099);
  ASSERT_EQ(got.eval_history_size(), 1);
  EXPECT_NEAR(got.eval_history(0).perplexity(), 7.389, 1e-3);
}

TEST_F(ApiTest, GetHasTheNewestSamples) {
  const v1::FineTuningJob job = MustCreate();
  v1::FineTuningJob got;
  ASSERT_TRUE(Get("job-1", &got).ok());
  EXPECT_EQ(got.eval_samples_size(), 0);
  JobFile(job.uid(), "samples.jsonl")
      << R"({"step":0,"index":0,"prompt":"p","completion":"a","tokens":[1]})"
      << "\nnull\n"
      << R"({"step":4,"index":0,"prompt":"p","completion":"b","tokens":[2,3]})"
      << "\n"
      << R"({"step":4,"index":1,"prompt":"q","completion":"","tokens":[9]})"
      << "\n{\"step\":8,\"ind";
  ASSERT_TRUE(Get("job-1", &got).ok());
  ASSERT_EQ(got.eval_samples_size(), 2);
  EXPECT_EQ(got.eval_samples(0).step(), 4);
  EXPECT_EQ(got.eval_samples(0).index(), 0);
  EXPECT_EQ(got.eval_samples(0).prompt(), "p");
  EXPECT_EQ(got.eval_samples(0).completion(), "b");
  ASSERT_EQ(got.eval_samples(0).tokens_size(), 2);
  EXPECT_EQ(got.eval_samples(0).tokens(1), 3);
  EXPECT_EQ(got.eval_samples(1).index(), 1);
  EXPECT_EQ(got.eval_samples(1).prompt(), "q");
}

void ExpectFakeNeeds(const v1::JobNeeds& needs) {
  EXPECT_EQ(needs.host_base_bytes(), 1);
  EXPECT_EQ(needs.host_state_bytes(), 2);
  EXPECT_EQ(needs.host_buffer_bytes(), 3);
  EXPECT_EQ(needs.host_table_bytes(), 4);
  EXPECT_EQ(needs.host_limit_bytes(), 5);
  EXPECT_EQ(needs.device_slot_bytes(), 6);
  EXPECT_EQ(needs.device_limit_bytes(), 7);
  EXPECT_EQ(needs.checkpoint_bytes(), 8);
  EXPECT_EQ(needs.checkpoint_count(), 9);
  EXPECT_EQ(needs.export_bytes(), 10);
  EXPECT_EQ(needs.disk_bytes(), 11);
  EXPECT_EQ(needs.disk_free_bytes(), 12);
  EXPECT_EQ(needs.disk_path(), "13");
  EXPECT_EQ(needs.parameters(), 14);
  EXPECT_EQ(needs.trainable_parameters(), 15);
  EXPECT_EQ(needs.steps(), 16);
  EXPECT_EQ(needs.step_seconds(), 17.5);
  EXPECT_EQ(needs.measured_in(), "projects/default/fineTuningJobs/job-18");
}

TEST_F(ApiTest, ValidateOnlyStoresNothing) {
  v1::CreateFineTuningJobRequest request;
  request.set_validate_only(true);
  request.set_request_id("r1");
  SetUpDryRun(&request);
  v1::FineTuningJob job;
  const grpc::Status status = Create(request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(job.name(), "");
  EXPECT_NE(job.resolved_spec(), "");
  ExpectFakeNeeds(job.needs());
  EXPECT_EQ(job.needs().dataset_rows(), 5);
  EXPECT_EQ(job.sample().line(), 3);
  EXPECT_EQ(job.sample().spans(0).text(), "a");
  v1::ListFineTuningJobsResponse list;
  ASSERT_TRUE(List({}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(ApiTest, ADryRunOfBadDataOrABadJobFileFails) {
  v1::CreateFineTuningJobRequest request;
  request.set_validate_only(true);
  SetUpDryRun(&request);
  v1::FineTuningJob job;
  std::ofstream(dir_ / "helper")
      << R"(echo '{"error": "no text", "file": "d", "line": 3}' >&2; exit 3)";
  grpc::Status status = Create(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "d:3"))
      << status.error_message();
  std::ofstream(dir_ / "helper")
      << R"(echo '{"format": "text", "samples": []}')";
  EXPECT_EQ(Create(request, &job).error_code(), grpc::StatusCode::INTERNAL);
  request.set_text("model: m\ndataset: d\nbatch_sise: 3\n");
  status = Create(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "batch_size"))
      << status.error_message();
}

TEST_F(ApiTest, RetriesWithOneRequestIdMakeOneJobAlsoAfterARestart) {
  std::set<std::string> uids;
  std::vector<std::thread> threads;
  Mutex mutex;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        const std::string uid = MustCreate("r-1").uid();
        MutexLock lock(mutex);
        uids.insert(uid);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  StopServer();
  StartServer({});
  uids.insert(MustCreate("r-1").uid());
  EXPECT_EQ(uids.size(), 1u);

  v1::CreateFineTuningJobRequest other;
  other.set_text("model: other\ndataset: d\n");
  other.set_request_id("r-1");
  v1::FineTuningJob job;
  const grpc::Status status = Create(other, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Reason(status), "REQUEST_ID_REUSED");
}

TEST_F(ApiTest, ABadFieldIsNamedInTheDetails) {
  const grpc::Status status = CreateText("model: m\ndataset: d\nsede: 1\n");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "job.yaml:3: sede: unknown field; did you mean seed?");
  EXPECT_EQ(Reason(status), "UNKNOWN_FIELD");
  const auto bad = Find<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad.has_value());
  ASSERT_EQ(bad->field_violations_size(), 1);
  EXPECT_EQ(bad->field_violations(0).field(), "sede");
}

TEST_F(ApiTest, EachKindOfErrorHasItsDetail) {
  grpc::Status status = CreateText("model: m\ndataset: d\nobjective: dpo\n");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Reason(status), "NOT_AVAILABLE");

  status = CreateText("model: m\ndataset: d\nbatch_size: 999\n");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(status), "HOST_MEMORY");
  EXPECT_EQ(Find<google::rpc::QuotaFailure>(status)->violations(0).subject(),
            "host_memory");

  v1::FineTuningJob job;
  status = Get("job-44", &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Find<google::rpc::ResourceInfo>(status)->resource_name(), "job-44");

  MustCreate();
  grpc::ClientContext context;
  Limit(&context);
  v1::PauseFineTuningJobRequest pause;
  pause.set_name("job-1");
  status = jobs_->PauseFineTuningJob(&context, pause, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(
      Find<google::rpc::PreconditionFailure>(status)->violations(0).subject(),
      "job-1");
  EXPECT_EQ(status.error_message(),
            "a job in state VALIDATING can't become PAUSED");
}

TEST_F(ApiTest, InternalsNeverLeak) {
  const grpc::Status status =
      CreateText("model: m\ndataset: d\nbatch_size: 998\n");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Reason(status), "INTERNAL");
  EXPECT_FALSE(absl::StrContains(status.error_message(), "secret"));
  EXPECT_FALSE(absl::StrContains(status.error_details(), "secret"));
}

TEST_F(ApiTest, CommandsMoveAJob) {
  MustCreate();
  Move("job-1", {JobState::kQueued});
  v1::FineTuningJob job;
  {
    grpc::ClientContext context;
    Limit(&context);
    v1::PauseFineTuningJobRequest request;
    request.set_name("job-1");
    ASSERT_TRUE(jobs_->PauseFineTuningJob(&context, request, &job).ok());
    EXPECT_EQ(job.state(), v1::PAUSED);
  }
  {
    grpc::ClientContext context;
    Limit(&context);
    v1::ResumeFineTuningJobRequest request;
    request.set_name("job-1");
    ASSERT_TRUE(jobs_->ResumeFineTuningJob(&context, request, &job).ok());
    EXPECT_EQ(job.state(), v1::QUEUED);
  }
  grpc::ClientContext context;
  Limit(&context);
  v1::CancelFineTuningJobRequest request;
  request.set_name("job-1");
  ASSERT_TRUE(jobs_->CancelFineTuningJob(&context, request, &job).ok());
  EXPECT_EQ(job.state(), v1::CANCELLED);
  EXPECT_TRUE(job.has_end_time());
}

TEST_F(ApiTest, ModelsAndWhatIsWrongWithThem) {
  std::filesystem::create_directories(dir_ / "models/bad");
  std::ofstream(dir_ / "models/bad/config.json") << "{}";
  v1::ListModelsResponse list;
  {
    grpc::ClientContext context;
    Limit(&context);
    ASSERT_TRUE(
        models_->ListModels(&context, v1::ListModelsRequest(), &list).ok());
  }
  ASSERT_EQ(list.models_size(), 1);
  EXPECT_EQ(list.models(0).name(), (dir_ / "models/bad").string());
  EXPECT_TRUE(absl::StrContains(list.models(0).problem(), "config.json"))
      << list.models(0).problem();
  EXPECT_FALSE(list.models(0).has_full());
  EXPECT_EQ(list.models(0).host_limit_bytes(), 100);
  for (const char* name : {"", "outside"}) {
    grpc::ClientContext context;
    Limit(&context);
    v1::GetModelRequest request;
    request.set_name(name);
    v1::Model model;
    EXPECT_EQ(models_->GetModel(&context, request, &model).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << name;
  }
}

TEST_F(ApiTest, OnlyARunningJobIsFinished) {
  MustCreate();
  Move("job-1", {JobState::kQueued});
  v1::FinishFineTuningJobRequest request;
  request.set_name("job-1");
  v1::FineTuningJob job;
  {
    grpc::ClientContext context;
    Limit(&context);
    EXPECT_EQ(jobs_->FinishFineTuningJob(&context, request, &job).error_code(),
              grpc::StatusCode::FAILED_PRECONDITION);
  }
  Move("job-1", {JobState::kLoading, JobState::kRunning});
  grpc::ClientContext context;
  Limit(&context);
  ASSERT_TRUE(jobs_->FinishFineTuningJob(&context, request, &job).ok());
  EXPECT_EQ(job.state(), v1::FINALIZING);
}

TEST_F(ApiTest, APriorityIsChangedAndShown) {
  v1::CreateFineTuningJobRequest create;
  create.set_text(kJobText);
  create.set_priority(v1::URGENT);
  v1::FineTuningJob job;
  ASSERT_TRUE(Create(create, &job).ok());
  EXPECT_EQ(job.priority(), v1::URGENT);
  v1::UpdateFineTuningJobRequest request;
  request.set_name("job-1");
  const auto update = [&] {
    grpc::ClientContext context;
    Limit(&context);
    return jobs_->UpdateFineTuningJob(&context, request, &job).error_code();
  };
  EXPECT_EQ(update(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_priority(static_cast<v1::JobPriority>(9));
  EXPECT_EQ(update(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_priority(v1::NORMAL);
  request.set_revision(-1);
  EXPECT_EQ(update(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_revision(job.revision() + 1);
  EXPECT_EQ(update(), grpc::StatusCode::ABORTED);
  request.set_revision(job.revision());
  ASSERT_EQ(update(), grpc::StatusCode::OK);
  EXPECT_EQ(job.priority(), v1::NORMAL);
  EXPECT_EQ(update(), grpc::StatusCode::ABORTED);
  request.clear_revision();
  request.set_priority(v1::BACKFILL);
  ASSERT_EQ(update(), grpc::StatusCode::OK);
  EXPECT_EQ(job.priority(), v1::BACKFILL);
  v1::ListFineTuningJobsResponse page;
  ASSERT_TRUE(List({}, &page).ok());
  EXPECT_EQ(page.jobs(0).priority(), v1::BACKFILL);
  Move("job-1", {JobState::kFailed});
  EXPECT_EQ(update(), grpc::StatusCode::FAILED_PRECONDITION);
  create.set_priority(static_cast<v1::JobPriority>(9));
  EXPECT_EQ(Create(create, &job).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ApiTest, AJobSaysWhyItWaits) {
  MustCreate();
  Move("job-1", {JobState::kQueued});
  v1::ExplainFineTuningJobRequest request;
  v1::ExplainFineTuningJobResponse answer;
  const auto explain = [&](const std::string& name) {
    request.set_name(name);
    grpc::ClientContext context;
    Limit(&context);
    return jobs_->ExplainFineTuningJob(&context, request, &answer).error_code();
  };
  ASSERT_EQ(explain("job-1"), grpc::StatusCode::OK);
  EXPECT_EQ(answer.job().name(), "projects/default/fineTuningJobs/job-1");
  EXPECT_EQ(answer.job().state(), v1::QUEUED);
  EXPECT_EQ(answer.job().submitted_text(), "");
  EXPECT_EQ(answer.job().resolved_spec(), "");
  EXPECT_TRUE(answer.explanation().has_since());
  EXPECT_EQ(answer.explanation().queue().place(), 2);
  ASSERT_EQ(answer.explanation().obstacles_size(), 2);
  EXPECT_EQ(answer.explanation().obstacles(1).memory().needed_bytes(), 50);
  EXPECT_EQ(explain("job-9"), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(explain(""), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ApiTest, PagesCoverEveryJobOnce) {
  for (int i = 0; i < 7; ++i) MustCreate();
  std::vector<std::string> names;
  v1::ListFineTuningJobsRequest request;
  request.set_page_size(3);
  do {
    v1::ListFineTuningJobsResponse page;
    ASSERT_TRUE(List(request, &page).ok());
    EXPECT_LE(page.jobs_size(), 3);
    for (const auto& job : page.jobs()) names.push_back(job.name());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  ASSERT_EQ(names.size(), 7u);
  EXPECT_EQ(names.front(), "projects/default/fineTuningJobs/job-7");
  EXPECT_EQ(names.back(), "projects/default/fineTuningJobs/job-1");
}

TEST_F(ApiTest, EventsArePaged) {
  MustCreate();
  Move("job-1", {JobState::kQueued, JobState::kLoading, JobState::kRunning});
  v1::ListFineTuningJobEventsRequest request;
  request.set_name("job-1");
  request.set_page_size(2);
  std::vector<v1::JobState> states;
  do {
    grpc::ClientContext context;
    Limit(&context);
    v1::ListFineTuningJobEventsResponse page;
    ASSERT_TRUE(jobs_->ListFineTuningJobEvents(&context, request, &page).ok());
    for (const auto& event : page.events()) states.push_back(event.state());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(states, (std::vector<v1::JobState>{v1::VALIDATING, v1::QUEUED,
                                               v1::LOADING, v1::RUNNING}));
}

TEST_F(ApiTest, ServerAndDevices) {
  MustCreate();
  Move("job-1", {JobState::kQueued});
  grpc::ClientContext context;
  Limit(&context);
  v1::Server server;
  ASSERT_TRUE(system_->GetServer(&context, {}, &server).ok());
  EXPECT_EQ(server.version(), "1.2.3");
  EXPECT_EQ(server.device_count(), 2);
  EXPECT_EQ(server.queued_jobs(), 1);
  EXPECT_EQ(server.running_jobs(), 0);
  grpc::ClientContext context2;
  Limit(&context2);
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(system_->ListDevices(&context2, {}, &devices).ok());
  ASSERT_EQ(devices.devices_size(), 2);
  EXPECT_EQ(devices.devices(1).name(), "devices/1");
  EXPECT_EQ(devices.devices(1).state(), v1::LOST);
  EXPECT_EQ(devices.devices(1).job(), "projects/default/fineTuningJobs/job-1");
  EXPECT_DOUBLE_EQ(devices.devices(1).bubble_ratio(), 0.25);
}

TEST_F(ApiTest, ADiagnosisIsTheDoctorsFindings) {
  grpc::ClientContext context;
  Limit(&context);
  v1::Diagnosis diagnosis;
  ASSERT_TRUE(system_->Diagnose(&context, {}, &diagnosis).ok());
  ASSERT_EQ(diagnosis.findings_size(), 1);
  EXPECT_EQ(diagnosis.findings(0).name(), "disk");
  EXPECT_EQ(diagnosis.findings(0).found(), "12 bytes are free");
  EXPECT_EQ(diagnosis.findings(0).verdict(), v1::VERDICT_PROBLEM);
  EXPECT_EQ(diagnosis.findings(0).remedy(), "df");
  EXPECT_EQ(diagnosis.version(), "1.2.3");
  EXPECT_GT(diagnosis.time().seconds(), 0);
}

TEST_F(ApiTest, HealthSaysServing) {
  auto health = grpc::health::v1::Health::NewStub(channel_);
  for (bool serving : {true, false}) {
    server_->SetHealth(serving ? ApiHealth::kServing : ApiHealth::kNotServing);
    for (const char* name : {"", "roundhouse.v1.FineTuningJobService"}) {
      grpc::ClientContext context;
      Limit(&context);
      grpc::health::v1::HealthCheckRequest request;
      request.set_service(name);
      grpc::health::v1::HealthCheckResponse response;
      ASSERT_TRUE(health->Check(&context, request, &response).ok());
      EXPECT_EQ(
          response.status() == grpc::health::v1::HealthCheckResponse::SERVING,
          serving);
    }
  }
}

TEST_F(ApiTest, TheSocketIsForTheGroupAtMost) {
  struct stat info;
  ASSERT_EQ(stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
}

TEST_F(ApiTest, ASecondServerIsRefusedAndAnOldSocketRemoved) {
  auto second = ApiServer::Start({.listen = "unix:" + socket_}, backends());
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  const std::string stale = dir_ / "stale";
  ASSERT_EQ(link(socket_.c_str(), stale.c_str()), 0);
  StopServer();
  // The name `stale` now belongs to a socket on which nobody listens.
  struct stat info;
  ASSERT_EQ(stat(stale.c_str(), &info), 0);
  socket_ = stale;
  StartServer({});
  MustCreate();
}

TEST_F(ApiTest, AFileInTheWayIsNeverRemoved) {
  std::ofstream(dir_ / "file") << "mine";
  auto server = ApiServer::Start(
      {.listen = absl::StrCat("unix:", (dir_ / "file").string())}, backends());
  EXPECT_TRUE(absl::IsAlreadyExists(server.status())) << server.status();
  EXPECT_TRUE(std::filesystem::exists(dir_ / "file"));
}

TEST(SocketPathTest, OnlyUnixSocketsThatFit) {
  EXPECT_EQ(*SocketPath("unix:/run/x"), "/run/x");
  EXPECT_EQ(*SocketPath("unix:///run/x"), "/run/x");
  for (const char* bad : {"127.0.0.1:50051", "tcp:1", "unix:", "unix:@x",
                          "unix-abstract:x", "/run/x", ""}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SocketPath(bad).status())) << bad;
  }
  EXPECT_TRUE(
      absl::StrContains(std::string(SocketPath("0.0.0.0:1").status().message()),
                        "--listen-tls=HOST:PORT is for the network"));
  const std::string longest = "/" + std::string(106, 'x');
  EXPECT_TRUE(SocketPath("unix:" + longest).ok());
  EXPECT_TRUE(absl::StrContains(
      std::string(SocketPath("unix:" + longest + "y").status().message()),
      "has 108 bytes, 107 is the most: /xxx"));
}

}  // namespace
}  // namespace roundhouse
