// A real ApiServer on a Unix socket over a real store, a fake engine and a
// dataset inspector whose helper is a shell script that the test writes.
#ifndef ROUNDHOUSE_SERVER_API_API_TEST_FIXTURE_H_
#define ROUNDHOUSE_SERVER_API_API_TEST_FIXTURE_H_

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/roundhouse/v1/account.grpc.pb.h"
#include "proto/roundhouse/v1/checkpoint.grpc.pb.h"
#include "proto/roundhouse/v1/dataset.grpc.pb.h"
#include "proto/roundhouse/v1/fine_tuning_job.grpc.pb.h"
#include "proto/roundhouse/v1/model.grpc.pb.h"
#include "proto/roundhouse/v1/plan.grpc.pb.h"
#include "proto/roundhouse/v1/system.grpc.pb.h"
#include "proto/roundhouse/v1/upload.grpc.pb.h"
#include "server/api/api_server.h"
#include "server/api/disk/fake_disk.h"
#include "server/api/fake_engine.h"
#include "server/api/fake_sampler.h"
#include "server/dataset/dataset_inspector.h"
#include "server/doctor/doctor.h"
#include "server/hub/model_pulls.h"
#include "server/loop/event_loop.h"
#include "server/planning/model_catalog.h"
#include "server/planning/training_planner.h"
#include "server/spec/spec_error.h"
#include "server/store/store.h"
#include "server/uploads/uploads.h"

namespace roundhouse {

inline constexpr char kJobText[] = "model: m\ndataset: d\n";

// Datasets that tests name need not be there: a bare name is an empty file.
class StandInFiles final : public FileOpener {
 public:
  absl::StatusOr<InputFile> Open(const std::string& path) const override {
    const bool bare = path.find('/') == std::string::npos;
    return AnyFiles().Open(bare ? file_ : path);
  }
  absl::StatusOr<FoundDirectory> OpenDirectory(
      const std::string& path) const override {
    return AnyFiles().OpenDirectory(path);
  }
  void SetFile(const std::string& path) {
    file_ = path;
    std::ofstream file(path);
  }

 private:
  std::string file_;
};

class ApiTestFixture : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rh_api.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    socket_ = dir_ / "s";
    files_.SetFile(dir_ / "stand-in");
    StartServer({});
  }
  void TearDown() override {
    StopServer();
    std::filesystem::remove_all(dir_);
  }

  void StartServer(StoreOptions options) {
    options.path = dir_ / "jobs.db";
    auto store = JobStore::Open(std::move(options));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    accounts_ = *Accounts::Load(store_.get());
    uploads_ = *Uploads::Open({.state_dir = dir_}, store_.get());
    pulls_ = std::make_unique<ModelPulls>(pull_options_, uploads_.get());
    tokens_ = *Tokens::Load(store_.get());
    loans_ = *DeviceLoans::Load(store_.get(), DeviceLoans::KeysOf({}, 2));
    engine_ = std::make_unique<FakeEngine>(store_.get());
    StartInspector();
    std::filesystem::create_directories(dir_ / "models");
    model_roots_ = *DataRoots::Create({.roots = {dir_ / "models"}});
    catalog_ = std::make_unique<ModelCatalog>(
        ModelCatalogOptions{
            .state_dir = dir_, .device = {1 << 30}, .host_limit_bytes = 100},
        *store_, *model_roots_, Names);
    auto server = ApiServer::Start({.listen = "unix:" + socket_,
                                    .state_dir = dir_,
                                    .metrics = metrics_.get(),
                                    .check_kept = [this] { return Kept(); },
                                    .limits = limits_,
                                    .max_idle = max_idle_,
                                    .stalled_reader_limit = patience_,
                                    .unary_deadline = unary_deadline_,
                                    .keepalive_interval = keepalive_,
                                    .keepalive_timeout = keepalive_,
                                    .least_ping_interval = least_ping_},
                                   backends());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel("unix:" + socket_,
                                   grpc::InsecureChannelCredentials());
    jobs_ = v1::FineTuningJobService::NewStub(channel_);
    datasets_ = v1::DatasetService::NewStub(channel_);
    checkpoints_ = v1::CheckpointService::NewStub(channel_);
    models_ = v1::ModelService::NewStub(channel_);
    plans_ = v1::PlanService::NewStub(channel_);
    system_ = v1::SystemService::NewStub(channel_);
    account_stub_ = v1::AccountService::NewStub(channel_);
    upload_stub_ = v1::UploadService::NewStub(channel_);
  }
  absl::Status Kept() const {
    if (engine_->submits() < kept_submits_) return absl::OkStatus();
    return FieldError(absl::StatusCode::kFailedPrecondition,
                      FieldReason::kStateDirectoryGone, "", "put it back");
  }
  ApiBackends backends() {
    return {.jobs = engine_.get(),
            .disk = &disk_,
            .store = store_.get(),
            .accounts = accounts_.get(),
            .tokens = tokens_.get(),
            .loans = loans_.get(),
            .datasets = inspector_.get(),
            .models = catalog_.get(),
            .sampler = &sampler_,
            .planner = &planner_,
            .doctor = &doctor_,
            .uploads = uploads_.get(),
            .pulls = pulls_.get()};
  }
  // Paths mean themselves; "outside" is refused.
  static PathResolver Names(const Caller&, Role) {
    return [](const std::string& field, const std::string& path,
              PathKind) -> absl::StatusOr<std::string> {
      if (path != "outside") return path;
      return RequestError(FieldReason::kPathOutsideDataRoots, field,
                          "no such path");
    };
  }
  void StartInspector() {
    loop_ = *EventLoop::Create();
    inspector_ = std::make_unique<DatasetInspector>(
        *loop_, HelperProgram{.python = "/bin/bash", .script = dir_ / "helper"},
        files_, Names);
    loop_thread_ = std::thread([this] { loop_->Run(); });
  }
  void StopInspector() {
    if (!loop_thread_.joinable()) return;
    loop_->Post([this] { loop_->Quit(); }).IgnoreError();
    loop_thread_.join();
    inspector_->Stop();
  }
  void StopServer() {
    StopInspector();
    jobs_.reset();
    datasets_.reset();
    checkpoints_.reset();
    models_.reset();
    plans_.reset();
    system_.reset();
    account_stub_.reset();
    upload_stub_.reset();
    channel_.reset();
    server_.reset();
    inspector_.reset();
    catalog_.reset();
    loop_.reset();
    engine_.reset();
    pulls_.reset();
    uploads_.reset();
    loans_.reset();
    tokens_.reset();
    accounts_.reset();
    store_.reset();
  }

  // Every call has a deadline, so that a broken server fails instead of
  // hanging.
  static void Limit(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() +
                          std::chrono::seconds(60));
  }

  grpc::Status Create(const v1::CreateFineTuningJobRequest& request,
                      v1::FineTuningJob* job) {
    grpc::ClientContext context;
    Limit(&context);
    return jobs_->CreateFineTuningJob(&context, request, job);
  }
  v1::FineTuningJob MustCreate(const std::string& request_id = "") {
    v1::CreateFineTuningJobRequest request;
    request.set_text(kJobText);
    request.set_request_id(request_id);
    v1::FineTuningJob job;
    const grpc::Status status = Create(request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  void Move(const std::string& id, std::initializer_list<JobState> states) {
    for (JobState s : states) {
      const auto moved = store_->Transition(id, s, {});
      ASSERT_TRUE(moved.ok()) << moved.status();
    }
  }
  std::ofstream JobFile(const std::string& uid, const std::string& file) {
    std::filesystem::create_directories(dir_ / "jobs" / uid);
    return std::ofstream(dir_ / "jobs" / uid / file, std::ios::app);
  }

  // Before StartServer.
  PeerLimits limits_;
  absl::Duration max_idle_ = kMaxConnectionIdle;
  absl::Duration patience_ = kStalledReaderLimit;
  absl::Duration unary_deadline_ = kUnaryDeadline;
  absl::Duration keepalive_ = kKeepaliveInterval;
  absl::Duration least_ping_ = kLeastPingInterval;
  ModelPullsOptions pull_options_;  // without a hub
  std::filesystem::path dir_;
  std::string socket_;
  const std::unique_ptr<ServerMetrics> metrics_ = ServerMetrics::Create();
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<Uploads> uploads_;
  std::unique_ptr<ModelPulls> pulls_;
  std::unique_ptr<Tokens> tokens_;
  std::unique_ptr<DeviceLoans> loans_;
  std::unique_ptr<FakeEngine> engine_;
  // So many submits reach a state directory that is there.
  std::atomic<int> kept_submits_ = std::numeric_limits<int>::max();
  FakeDisk disk_;
  FakeSampler sampler_;
  const TrainingPlanner planner_{AnyFiles(), Names};
  Doctor doctor_{[] {
    return std::vector<Finding>{{.name = "disk",
                                 .found = "12 bytes are free",
                                 .verdict = Verdict::kProblem,
                                 .remedy = "df"}};
  }};
  std::unique_ptr<EventLoop> loop_;
  std::thread loop_thread_;  // runs loop_
  StandInFiles files_;
  std::unique_ptr<DatasetInspector> inspector_;
  std::unique_ptr<DataRoots> model_roots_;
  std::unique_ptr<ModelCatalog> catalog_;
  std::unique_ptr<ApiServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::FineTuningJobService::Stub> jobs_;
  std::unique_ptr<v1::DatasetService::Stub> datasets_;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints_;
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::unique_ptr<v1::PlanService::Stub> plans_;
  std::unique_ptr<v1::SystemService::Stub> system_;
  std::unique_ptr<v1::AccountService::Stub> account_stub_;
  std::unique_ptr<v1::UploadService::Stub> upload_stub_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_API_TEST_FIXTURE_H_
