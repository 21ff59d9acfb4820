#include "tests/sim/history.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/job_state.h"
#include "base/log.h"
#include "server/jobs/transitions.h"

namespace roundhouse::sim {
namespace {

constexpr int kEvents = 25;
constexpr absl::Duration kMostPause = absl::Seconds(8);
// All jobs together take minutes.
constexpr absl::Duration kMostWait = absl::Hours(2);

constexpr absl::Duration kMostHelperTime = absl::Seconds(1);
// A dataset is read again after fewer deaths than a job survives.
constexpr int kMostHelperDeaths = 2;
// What a sample may take that waits for no other and has a device.
constexpr absl::Duration kMostSample = absl::Minutes(2);

using Result = absl::StatusOr<JobRecord>;

// What may refuse a command, and no fault of the daemon's.
bool MayRefuse(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) ||
         absl::IsResourceExhausted(status) || absl::IsUnavailable(status) ||
         absl::IsInternal(status);
}

}  // namespace

void History::Counts::Add(const Counts& other) {
  submits += other.submits;
  jobs += other.jobs;
  slots += other.slots;
  crashes += other.crashes;
  deaths += other.deaths;
  loans += other.loans;
  full_disks += other.full_disks;
  held += other.held;
  samples += other.samples;
  answered += other.answered;
  succeeded += other.succeeded;
  cancelled += other.cancelled;
}

History::History(uint64_t seed, const std::string& root)
    : root_(root), random_(seed) {
  server_ =
      std::make_unique<SimServer>(OptionsOf(std::filesystem::canonical(root_)));
}

History::~History() {
  server_.reset();
  std::filesystem::remove_all(root_);
}

SimServerOptions History::OptionsOf(const std::string& root) {
  devices_ = static_cast<int>(1 + Draw(4));
  max_running_ = static_cast<int>(1 + Draw(4));
  SimServerOptions options;
  options.root = root;
  options.workers.device_count = devices_;
  options.workers.seed = random_();
  options.workers.layer_time = absl::Milliseconds(5 + Draw(100));
  options.workers.begins = [this](const Order& order) { OnBegins(order); };
  options.workers.done = [this](const Order& order, absl::Duration) {
    OnDone(order);
  };
  options.workers.disk_full = [this] { return saves_fail_; };
  options.helper_time = kMostHelperTime;
  options.host_bytes = (uint64_t{5} << 20) + Draw(uint64_t{28} << 20);
  options.max_running_jobs = max_running_;
  max_of_user_ = static_cast<int>(1 + Draw(3));
  options.sharing.running.other_users = max_of_user_;
  options.store_fault = [this] { return store_fault_; };
  return options;
}

void History::Say(const std::string& what) {
  log_.push_back(absl::StrCat(
      absl::ToDoubleSeconds(server_->now() - absl::FromUnixSeconds(1.7e9)),
      " s: ", what));
}

void History::Break(const std::string& what) {
  Say(what);
  if (broken_.ok()) broken_ = absl::InternalError(log_.back());
}

// --- what happens ---

std::map<std::string, History::Job>::iterator History::AnyJob() {
  if (jobs_.empty()) return jobs_.end();
  return std::next(jobs_.begin(), static_cast<int64_t>(Draw(jobs_.size())));
}

absl::StatusOr<std::string> History::Send(const SubmitRequest& request) {
  const auto made = server_->Call<absl::StatusOr<SubmitResult>>(
      [&] { return server_->engine().Submit(request); });
  if (made.ok()) return made->job.id;
  const std::string why = absl::StrCat(request.request_id, ": ",
                                       std::string(made.status().message()));
  MayRefuse(made.status()) ? Say(why) : Break(why);
  return made.status();
}

void History::Submit() {
  SubmitRequest request;
  const JobPlan plan =
      DrawJobPlan([this](uint64_t below) { return Draw(below); });
  request.text = plan.text;
  if (Chance(40)) {
    request.priority = Chance(50) ? Priority::kUrgent : Priority::kBackfill;
  }
  request.file_name = "job.yaml";
  request.caller.admin = true;
  request.caller.user = absl::StrCat("user", Draw(4));
  request.caller.principal = "user:" + request.caller.user;
  request.request_id = absl::StrCat("request-", counts_.submits++);
  const auto id = Send(request);
  if (!id.ok()) return;
  Look();
  ++counts_.jobs;
  Job& job = jobs_[*id];
  job.plan = plan;
  job.request = request;
  job.priority = request.priority.value_or(Priority::kNormal);
  Say(absl::StrCat("submitted ", *id, " of ", plan.steps, " steps",
                   plan.adapters ? ", adapters" : ""));
}

void History::SubmitAgain() {
  const auto at = AnyJob();
  if (at == jobs_.end()) return;
  const auto id = Send(at->second.request);
  if (!id.ok() || *id == at->first) return;
  Break(absl::StrCat(at->second.request.request_id, " made ", at->first,
                     " and, once more, ", *id));
}

void History::Ask() {
  const auto at = AnyJob();
  if (at == jobs_.end()) return;
  const std::string id = at->first;
  Job& job = at->second;
  struct Verb {
    const char* name;
    Result (Engine::*call)(const std::string&);
    bool* asked;
  };
  // What is seen meanwhile may follow from this call.
  const bool before = std::exchange(job.told_to_pause, false);
  bool paused = false, resumed = false;
  const Verb verbs[] = {{"pause", &Engine::Pause, &paused},
                        {"pause", &Engine::Pause, &paused},
                        {"give back", &Engine::PauseAndGiveBack, &paused},
                        {"resume", &Engine::Resume, &resumed},
                        {"resume", &Engine::Resume, &resumed},
                        {"cancel", &Engine::Cancel, &job.cancelled},
                        {"finish", &Engine::Finish, &job.finished}};
  const Verb& verb = verbs[Draw(7)];
  const Result answer =
      server_->Call<Result>([&] { return (server_->engine().*verb.call)(id); });
  NoteAnswer(absl::StrCat(verb.name, " ", id), answer.status());
  if (answer.ok()) *verb.asked = true;
  LookNow();
  job.told_to_pause = paused || (before && !resumed);
}

void History::NoteAnswer(const std::string& asked, const absl::Status& answer) {
  Say(absl::StrCat(asked, ": ",
                   answer.ok() ? "done" : std::string(answer.message())));
  if (!answer.ok() && !MayRefuse(answer)) Break(asked);
}

void History::SetPriority() {
  const auto at = AnyJob();
  if (at == jobs_.end()) return;
  const std::string id = at->first;
  const PriorityChange change = {.priority =
                                     kPriorities[Draw(std::size(kPriorities))]};
  const Result answer = server_->Call<Result>(
      [&] { return server_->engine().SetPriority(id, change); });
  NoteAnswer(absl::StrCat("priority ", id, " ", PriorityName(change.priority)),
             answer.status());
  if (answer.ok()) at->second.priority = change.priority;
}

void History::HitWorker() {
  if (Chance(10) && helper_deaths_ < kMostHelperDeaths) {
    if (!server_->helpers().KillOne()) return;
    ++helper_deaths_;
    samples_.NoteHelperDeath();
    return Say("a helper is killed");
  }
  const int worker = static_cast<int>(Draw(devices_ + 2));
  const bool lose = worker < devices_ && Chance(10);
  if (lose && static_cast<int>(lost_.size()) + 1 < devices_) {
    lost_.insert(worker);
    Say(absl::StrCat("device ", worker, " is lost"));
    server_->workers().Lose(static_cast<DeviceId>(worker));
  } else if (!lost_.contains(worker)) {
    ++counts_.deaths;
    Say(absl::StrCat("worker ", worker, " dies"));
    server_->workers().Kill(static_cast<WorkerId>(worker));
  }
}

void History::LendOrReturn() {
  const int device = static_cast<int>(Draw(static_cast<uint64_t>(devices_)));
  const Caller caller = {.principal = "uid:0", .admin = true};
  DeviceLoans& loans = server_->loans();
  if (lost_.contains(device)) {
    Say(absl::StrCat("device ", device, " is revived"));
    lost_.erase(device);
    server_->engine().ReviveDevice(device);
    return;
  }
  const bool fence = Chance(20);
  const absl::Time until = Chance(30)
                               ? absl::InfiniteFuture()
                               : server_->now() + absl::Seconds(1 + Draw(60));
  const bool there = loans.Now()[device].has_value();
  const auto done = server_->Call<absl::StatusOr<DeviceLoan>>([&] {
    if (there) {
      const auto returned = loans.Return(caller, device);
      return returned.ok() ? returned : loans.Unfence(device);
    }
    return fence ? loans.Fence(caller, device, "")
                 : loans.Lend(caller, server_->limits(), device, until, "");
  });
  if (!done.ok()) {
    const std::string why(done.status().message());
    return MayRefuse(done.status()) ? Say(why) : Break(why);
  }
  counts_.loans += there ? 0 : 1;
  Say(absl::StrCat(there ? "no longer: " : "", TextOf(device, *done)));
}

void History::ReturnAll() {
  const Caller caller = {.principal = "uid:0", .admin = true};
  for (int i = 0; i < devices_; ++i) {
    server_->Call<bool>([&] {
      server_->loans().Return(caller, i).IgnoreError();
      return server_->loans().Unfence(i).ok();
    });
  }
}

void History::FillDisk() {
  ++counts_.full_disks;
  saves_fail_ = Chance(70);
  disk_.Set(Chance(50) ? DiskState::kFull : DiskState::kQuota,
            [this](FileSite) { return Chance(60); });
  Say(absl::StrCat("the disk is full",
                   disk_.state() == DiskState::kQuota ? ", by a quota" : "",
                   saves_fail_ ? "" : ", but for weights"));
}

void History::MendDisk() {
  if (!disk_.full()) return;
  Say("the disk has room");
  saves_fail_ = false;
  disk_.Set(DiskState::kRoomy);
}

void History::AskForSample() {
  const auto at = AnyJob();
  if (at == jobs_.end()) return;
  SampleQuestion question;
  question.caller = at->second.request.caller;
  question.model = Chance(80) ? at->first : kModel;
  question.prompts.resize(1 + Draw(3));
  for (std::string& prompt : question.prompts) {
    for (uint64_t i = 0; i <= Draw(6); ++i) {
      prompt += static_cast<char>('a' + Draw(26));
    }
  }
  question.max_new_tokens = 1 + static_cast<int64_t>(Draw(60));
  Say(absl::StrCat("a sample of ", question.model));
  samples_.Ask(*server_, question);
}

void History::WithdrawSample() {
  const std::string name = samples_.Withdraw(*server_, Draw(1000));
  if (!name.empty()) Say(absl::StrCat(name, " is withdrawn"));
}

void History::Restart() {
  ++counts_.crashes;
  Say("the daemon is killed");
  server_->Crash();
  samples_.OnCrash();
  lost_.clear();
  // Warnings that neither the store nor the log has taken are gone.
  const bool warnings_lost = disk_.full() && StoreMayLag();
  for (auto& [id, job] : jobs_) {
    job.updates.clear();
    const auto steps = static_cast<int64_t>(job.last_step);
    for (int64_t i = 0; warnings_lost && i <= steps; ++i) {
      job.unsampled.insert(i);
    }
  }
  if (Chance(50)) MendDisk();
  MendStore();
  server_->Start();
}

void History::BreakStore() {
  store_fault_ = Chance(50)
                     ? absl::ResourceExhaustedError("no space left on device")
                     : absl::InternalError("Input/output error");
  Say("the store refuses");
}

void History::MendStore() {
  if (store_fault_.ok()) return;
  Say("the store is well");
  store_fault_ = absl::OkStatus();
  store_well_ = server_->now();
}

bool History::StoreMayLag() const {
  return !store_fault_.ok() ||
         server_->now() <= store_well_ + kLongestStoreRetry;
}

void History::DoSomething() {
  const uint64_t what = Draw(100);
  if (what < 30) return Submit();
  if (what < 34) return SubmitAgain();
  if (what < 40) return SetPriority();
  if (what < 60) return Ask();
  if (what < 71) return HitWorker();
  if (what < 77) return LendOrReturn();
  if (what < 83) return Restart();
  if (what < 88) return AskForSample();
  if (what < 90) return WithdrawSample();
  if (what < 95) return disk_.full() ? MendDisk() : FillDisk();
  store_fault_.ok() ? BreakStore() : MendStore();
}

// --- the end ---

bool History::ResumeAll() {
  bool all_final = true;
  for (auto& [id, job] : jobs_) {
    all_final &= IsFinal(job.state);
    if (job.state != JobState::kPaused) continue;
    // With its memory it goes on, or is saved, whatever it was told.
    if (job.awaits_room && (job.memory_kept || !job.told_to_pause)) continue;
    if (job.gives_way) Break(absl::StrCat(id, " gave way and stays PAUSED"));
    job.told_to_pause = false;
    server_->Call<Result>([&, id = id] { return server_->engine().Resume(id); })
        .IgnoreError();
  }
  return all_final;
}

void History::EndAll() {
  MendStore();
  MendDisk();
  Say("nothing happens any more");
  ReturnAll();
  Pass(2 * kLongestStoreRetry);
  Pass(static_cast<double>(samples_.open()) * kMostSample);
  if (samples_.open() > 0) Break("samples do not end");
  const absl::Time latest = server_->now() + kMostWait;
  while (broken_.ok() && !ResumeAll()) {
    if (server_->now() > latest) return Break("jobs do not end");
    Pass(absl::Seconds(20));
  }
}

// Nothing has host memory, but for the base that was used last.  Bases before
// it are dropped as another one is wanted.
void History::CheckArena() {
  const auto used = [this] { return server_->arena().used_bytes(); };
  if (used() == free_arena_bytes_) return;
  samples_.Ask(*server_, {.caller = {.principal = "uid:0", .admin = true},
                          .model = kOtherModel,
                          .prompts = {"end"}});
  Pass(kMostSample);
  if (samples_.open() > 0) Break("the last sample does not end");
  if (used() == free_arena_bytes_ + BaseBytes()) return;
  Break(absl::StrCat("the arena has ", used(), " bytes with no job, ",
                     free_arena_bytes_, " at the start"));
}

void History::CheckEnds() {
  CheckArena();
  for (auto& [id, job] : jobs_) CheckEnd(id, job);
  counts_.samples = samples_.counts().asked;
  counts_.answered = samples_.counts().answered;
}

void History::CheckEnd(const std::string& id, Job& job) {
  const auto record = server_->store().Get(id);
  if (!record.ok()) return Break(std::string(record.status().message()));
  if (record->priority != job.priority) {
    Break(absl::StrCat(id, " is ", PriorityName(record->priority)));
  }
  counts_.succeeded += record->state == JobState::kSucceeded ? 1 : 0;
  counts_.cancelled += record->state == JobState::kCancelled ? 1 : 0;
  const JobState end =
      job.cancelled ? JobState::kCancelled : JobState::kSucceeded;
  if (record->state != end) {
    return Break(absl::StrCat(id, " is ", JobStateName(record->state), ": ",
                              record->message));
  }
  if (job.cancelled) return;
  const int64_t steps = record->progress.step;
  if (!job.finished && steps != job.plan.steps) {
    Break(absl::StrCat(id, " has ", steps, " steps of ", job.plan.steps));
  }
  ReadLog(absl::StrCat(root_, "/state/jobs/", record->uid, "/log"), job);
  const absl::Status result =
      CheckResult(job.plan, record->output_path, steps, job.unsampled);
  if (!result.ok()) Break(absl::StrCat(id, ": ", result.message()));
}

absl::Status History::Run() {
  server_->Start();
  free_arena_bytes_ = server_->arena().used_bytes();
  for (int i = 0; i < kEvents && broken_.ok(); ++i) {
    Pass(absl::Milliseconds(
        Draw(static_cast<uint64_t>(absl::ToInt64Milliseconds(kMostPause)))));
    DoSomething();
  }
  if (broken_.ok()) EndAll();
  if (broken_.ok()) CheckEnds();
  return broken_;
}

}  // namespace roundhouse::sim
