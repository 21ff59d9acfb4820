#include "tests/day/server_day.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "base/job_state.h"
#include "base/log.h"
#include "server/access/accounts.h"
#include "server/store/store.h"
#include "tests/sim/sim_server.h"

namespace roundhouse::day {
namespace {

// Layer 3 is the head.
constexpr char kJob[] =
    "model_name_or_path: $0\nmodel_init: random\ndataset: d.jsonl\n"
    "max_length: 8\nbatch_size: 8\nmicro_batch_size: 1\n"
    "max_steps: $1\nsave_steps: 1000000\npriority: $2\n"
    "gradient_groups: 8\n"
    "plan:\n"
    "  forward: [[0, 0], [1, 1]]\n"
    "  backward: [[2, 3], [1, 1], [0, 0]]\n"
    "  width: 8\n";

constexpr const char* kModels[] = {"small", "middle", "large"};
constexpr int kVocabularies[] = {40, 13'000, 50'000};
// Three steps are an epoch: no batch is shorter than others.
constexpr int kSequences = 24;
constexpr absl::Duration kMostAfterwards = absl::Hours(48);

std::string NameOfProject(int project) {
  return absl::StrCat("project", project);
}

// A day under one daemon.
class Runner {
 public:
  Runner(const TeamDay& day, const ServerDayOptions& how)
      : day_(day), rule_(how.rule) {
    result_.run.jobs.resize(day.jobs.size());
    loaded_.resize(day.jobs.size());
    begun_.resize(kDevices);
    sim::SimServerOptions options;
    options.root = std::filesystem::canonical(how.root);
    options.workers = WorkerOptions();
    options.host_bytes = how.host_bytes;
    options.max_running_jobs = rule_ == ServerRule::kTwoJobs ? 2 : 16;
    options.sequences = kSequences;
    server_ = std::make_unique<sim::SimServer>(options);
    for (int i = 0; i < kDayModelCount; ++i) {
      sim::WriteModel(absl::StrCat(options.root, "/data/", kModels[i]),
                      kVocabularies[i]);
    }
    server_->Start();
    AddProjects();
    server_->RunFor(absl::Seconds(10), [] {});  // workers are up
    midnight_ = server_->now();
  }

  ServerDay Run() {
    for (const auto& [time, what] : Happenings()) {
      PassUntil(time);
      what();
    }
    const absl::Duration latest = Now() + kMostAfterwards;
    while (ended_ < day_.jobs.size()) {
      ROUNDHOUSE_CHECK(Now() < latest) << "jobs do not end";
      PassUntil(Now() + absl::Minutes(1));
    }
    return std::move(result_);
  }

 private:
  using Happening = std::pair<absl::Duration, std::function<void()>>;

  sim::SimWorkersOptions WorkerOptions() {
    sim::SimWorkersOptions workers;
    workers.device_count = kDevices;
    workers.layer_time_of = [this](uint64_t job) {
      return LayerTime(day_.jobs[job - 1].model);
    };
    workers.look_again = absl::Seconds(1);
    workers.begins = [this](const sim::Order& order) { OnBegins(order); };
    workers.done = [this](const sim::Order& order, absl::Duration time) {
      OnDone(order, time);
    };
    return workers;
  }

  void AddProjects() {
    auto accounts = Accounts::Load(&server_->store());
    ROUNDHOUSE_CHECK(accounts.ok()) << accounts.status();
    for (int i = 0; i < kProjects; ++i) {
      const auto added = (*accounts)->AddProject(NameOfProject(i));
      ROUNDHOUSE_CHECK(added.ok()) << added.status();
    }
  }

  absl::Duration Now() const { return server_->now() - midnight_; }

  void OnBegins(const sim::Order& order) {
    const auto* const slot = std::get_if<wire::RunSlot>(&order.body);
    if (slot == nullptr) return;
    const size_t index = slot->job - 1;
    JobRun& job = result_.run.jobs[index];
    if (!job.began.has_value()) {
      job.began = Now();
      NoteUrgent(index);
    }
    begun_[Number(order.worker)] = Begun{Now(), index};
  }

  void OnDone(const sim::Order& order, absl::Duration time) {
    const auto* const slot = std::get_if<wire::RunSlot>(&order.body);
    if (slot == nullptr) return;
    ++result_.slots;
    result_.run.jobs[slot->job - 1].device_time += time;
    const absl::Duration from = begun_[Number(order.worker)]->at;
    result_.run.services.push_back(
        {day_.jobs[slot->job - 1].user, from, Now()});
  }

  // The job begins its first slot.
  void NoteUrgent(size_t index) {
    if (!day_.jobs[index].urgent || rule_ != ServerRule::kShares) return;
    Look();
    ROUNDHOUSE_CHECK(loaded_[index].has_value());
    UrgentStart start{.job = index,
                      .loaded = *loaded_[index],
                      .waited = Now() - *loaded_[index]};
    for (const auto& slot : begun_) {
      if (!slot.has_value()) continue;
      const DayModel model = day_.jobs[slot->job].model;
      start.longest_slot = std::max(start.longest_slot, LongestSlot(model));
    }
    result_.urgent.push_back(start);
  }

  // What the store has told since the last look.
  void Look() {
    if (!server_->store_told()) return;
    while (true) {
      const auto changes = server_->store().ChangesAfter(revision_, "", 100);
      ROUNDHOUSE_CHECK(changes.ok()) << changes.status();
      for (const JobChange& change : *changes) OnChange(change.event);
      if (changes->size() < 100) return;
    }
  }

  void OnChange(const JobEvent& event) {
    revision_ = event.revision;
    const auto index = static_cast<size_t>(*JobNumber(event.job_id)) - 1;
    if (event.state == JobState::kRunning && !loaded_[index].has_value()) {
      loaded_[index] = Now();
    }
    JobRun& job = result_.run.jobs[index];
    const bool state = event.type == "state";
    if (state && event.state == JobState::kPausing) ++job.saves;
    if (!IsFinal(event.state) || job.ended.has_value()) return;
    ROUNDHOUSE_CHECK(event.state != JobState::kFailed)
        << event.job_id << ": " << event.message;
    job.ended = Now();
    job.cancelled = event.state == JobState::kCancelled;
    ++ended_;
  }

  void PassUntil(absl::Duration time) {
    server_->RunFor(time - Now(), [this] {
      Look();
      LookAtLoan();
    });
  }

  // Its worker is gone, and so is what it had on the device.
  void LookAtLoan() {
    if (Now() < day_.loan.from || result_.run.lent.has_value()) return;
    const sim::SimWorkers& workers = server_->workers();
    const auto device = static_cast<DeviceId>(day_.loan.device);
    if (workers.up(workers.DeviceWorker(device))) return;
    result_.run.lent = Now();
  }

  // All that people do, in the order of its times.
  std::vector<Happening> Happenings() {
    std::vector<Happening> all;
    for (size_t i = 0; i < day_.jobs.size(); ++i) {
      const DayJob& job = day_.jobs[i];
      all.emplace_back(job.submitted, [this, i] { Submit(i); });
      if (job.cancelled == absl::InfiniteDuration()) continue;
      all.emplace_back(job.cancelled, [this, i] { Cancel(i); });
    }
    all.emplace_back(day_.loan.from, [this] { Lend(); });
    std::stable_sort(all.begin(), all.end(),
                     [](const Happening& a, const Happening& b) {
                       return a.first < b.first;
                     });
    return all;
  }

  void Submit(size_t index) {
    const DayJob& job = day_.jobs[index];
    const bool shares = rule_ == ServerRule::kShares;
    const int user = shares ? job.user : 0;
    SubmitRequest request;
    request.text =
        absl::Substitute(kJob, kModels[static_cast<int>(job.model)], job.steps,
                         shares && job.urgent ? "urgent" : "normal");
    request.file_name = "job.yaml";
    request.caller.user = absl::StrCat("user", user);
    request.caller.principal = "user:" + request.caller.user;
    request.caller.admin = true;
    request.project = NameOfProject(ProjectOf(user));
    const auto made = server_->Call<absl::StatusOr<SubmitResult>>(
        [&] { return server_->engine().Submit(request); });
    ROUNDHOUSE_CHECK(made.ok()) << made.status();
    ROUNDHOUSE_CHECK(*JobNumber(made->job.id) ==
                     static_cast<int64_t>(index) + 1);
  }

  void Cancel(size_t index) {
    if (result_.run.jobs[index].ended.has_value()) return;
    const std::string id = NameOfJob(static_cast<int64_t>(index) + 1);
    const auto cancelled = server_->Call<absl::StatusOr<JobRecord>>(
        [&] { return server_->engine().Cancel(id); });
    if (cancelled.ok()) return;
    // Its result is being written.
    ROUNDHOUSE_CHECK(absl::IsFailedPrecondition(cancelled.status()))
        << cancelled.status();
  }

  void Lend() {
    const Caller caller = {.principal = "uid:0", .admin = true};
    const absl::Time until = midnight_ + day_.loan.until;
    const auto lent = server_->Call<absl::StatusOr<DeviceLoan>>([&] {
      return server_->loans().Lend(caller, server_->limits(), day_.loan.device,
                                   until, "");
    });
    ROUNDHOUSE_CHECK(lent.ok()) << lent.status();
  }

  struct Begun {
    absl::Duration at;
    size_t job = 0;  // an index
  };

  const TeamDay& day_;
  const ServerRule rule_;
  absl::Time midnight_;
  ServerDay result_;
  std::vector<std::optional<absl::Duration>> loaded_;  // jobs
  std::vector<std::optional<Begun>> begun_;  // the last slot of each device
  size_t ended_ = 0;                         // jobs
  int64_t revision_ = 0;
  std::unique_ptr<sim::SimServer> server_;
};

}  // namespace

ServerDay RunServerDay(const TeamDay& day, const ServerDayOptions& options) {
  return Runner(day, options).Run();
}

}  // namespace roundhouse::day
