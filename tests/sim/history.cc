#include "tests/sim/history.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <variant>

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

constexpr char kJob[] =
    "model_name_or_path: m\nmodel_init: random\ndataset: d.jsonl\n"
    "max_length: 8\nbatch_size: 4\n";

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

// --- what workers do ---

void History::OnBegins(const Order& order) {
  const auto mix = [this](uint64_t value) {
    digest_ = (digest_ ^ value) * 0x100000001b3 + (digest_ >> 29);
  };
  mix(static_cast<uint64_t>(absl::ToUnixNanos(server_->now())));
  mix(static_cast<uint64_t>(Number(order.worker)) << 32 | order.body.index());
  const auto* const slot = std::get_if<wire::RunSlot>(&order.body);
  if (slot == nullptr) return;
  mix(slot->job << 32 | slot->slot);
  ++counts_.slots;
  Look();
  const std::string id = NameOfJob(static_cast<int64_t>(slot->job));
  const Job& job = jobs_[id];
  // The store's thread may not have told yet of what it has written.
  if (!IsActive(job.state)) LookNow();
  if (IsActive(job.state)) return;
  Break(absl::StrCat(id, " is ", JobStateName(job.state), " and a slot of it ",
                     "begins"));
}

void History::OnDone(const Order& order) {
  const auto* const op = std::get_if<wire::HostOp>(&order.body);
  if (op == nullptr || op->kind != HostOpKind::kUpdate) return;
  const std::string id = NameOfJob(static_cast<int64_t>(op->job));
  Job& job = jobs_[id];
  const auto found = job.updates.find(op->unit);
  if (found != job.updates.end()) {
    const auto [step, operation] = found->second;
    const bool again = op->step == step && op->operation == operation;
    if (!again && op->step != step + 1) {
      Break(absl::StrCat(id, ": unit ", op->unit, " is updated in step ",
                         op->step, " after step ", step));
    }
  } else if (op->step > job.last_step + 1) {
    Break(absl::StrCat(id, " goes on with step ", op->step, " after step ",
                       job.last_step));
  }
  job.last_step = std::max(job.last_step, op->step);
  job.updates[op->unit] = {op->step, op->operation};
}

// --- what the store says ---

void History::Look() {
  if (server_->store_told()) LookNow();
}

void History::LookNow() {
  while (true) {
    const auto changes = server_->store().ChangesAfter(revision_, "", 100);
    if (!changes.ok()) return Break(std::string(changes.status().message()));
    for (const JobChange& change : *changes) OnChange(change);
    if (changes->size() < 100) return;
  }
}

void History::OnChange(const JobChange& change) {
  revision_ = change.event.revision;
  const auto found = jobs_.find(change.event.job_id);
  if (found == jobs_.end()) {  // it is being submitted
    jobs_[change.event.job_id];
    return;
  }
  Job& job = found->second;
  const JobState state = change.event.state;
  if (state != job.state) {
    const absl::Status arrow = CheckTransition(job.state, state);
    if (!arrow.ok()) {
      Break(absl::StrCat(found->first, ": ", std::string(arrow.message())));
    }
    Say(absl::StrCat(found->first, " is ", JobStateName(state), " ",
                     JobReasonName(change.event.reason), " at step ",
                     change.event.step, " ", change.event.message));
    // From here on it may begin at a checkpoint.
    if (state == JobState::kLoading) job.updates.clear();
    if (state == JobState::kFinalizing) CheckUpdates(found->first, job);
  }
  job.spilled = state == JobState::kPausing &&
                (job.spilled || job.state == JobState::kPaused ||
                 change.event.reason == JobReason::kGivesWay);
  job.state = state;
  job.gives_way = change.job.reason == JobReason::kGivesWay;
  job.memory_kept = change.job.progress.memory_kept;
}

// None was left out in the last step.
void History::CheckUpdates(const std::string& id, const Job& job) {
  uint64_t last = 0;
  for (const auto& [unit, update] : job.updates) {
    last = std::max(last, update.first);
  }
  for (const auto& [unit, update] : job.updates) {
    if (update.first == last) continue;
    Break(absl::StrCat(id, " is finalizing after step ", last, "; unit ", unit,
                       " was updated last in step ", update.first));
  }
}

void History::CheckRunning() {
  // One that is over, and not stored so, has left its place.
  if (!store_fault_.ok() ||
      server_->now() <= store_well_ + kLongestStoreRetry) {
    return;
  }
  int running = 0;
  std::map<std::string, int> of_user;
  for (const auto& [id, job] : jobs_) {
    if (!IsActive(job.state) || job.memory_kept || job.spilled) continue;
    ++running;
    const std::string& user = job.request.caller.user;
    if (++of_user[user] > max_of_user_) {
      Break(absl::StrCat("jobs of ", user, " run: ", of_user[user], "; ",
                         max_of_user_, " may"));
    }
  }
  if (running > max_running_) {
    Break(absl::StrCat(running, " jobs run; ", max_running_, " may"));
  }
}

// Its slot ended or was given up, and its worker is gone.
void History::CheckLent() {
  const absl::Duration latest = kVacateLimit + absl::Seconds(2);
  const DeviceLoanList loans = server_->loans().Now();
  for (int i = 0; i < devices_; ++i) {
    if (!loans[i].has_value() || server_->now() < loans[i]->since + latest) {
      continue;
    }
    SimWorkers& workers = server_->workers();
    if (!workers.up(workers.DeviceWorker(static_cast<DeviceId>(i)))) continue;
    Break(absl::StrCat(TextOf(i, *loans[i]), ", and its worker is up"));
  }
}

void History::Pass(absl::Duration time) {
  server_->RunFor(time, [this] {
    if (!broken_.ok()) return;
    Look();
    CheckRunning();
    CheckLent();
  });
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
  const int64_t steps = 1 + static_cast<int64_t>(Draw(8));
  request.text = absl::StrCat(kJob, "max_steps: ", steps,
                              "\nmicro_batch_size: ", 1 + Draw(2),
                              "\nsave_steps: ", 1 + Draw(6), "\n");
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
  job.steps = steps;
  job.request = request;
  job.priority = request.priority.value_or(Priority::kNormal);
  Say(absl::StrCat("submitted ", *id, " of ", steps, " steps"));
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
  bool ignored = false;
  const Verb verbs[] = {{"pause", &Engine::Pause, &ignored},
                        {"pause", &Engine::Pause, &ignored},
                        {"give back", &Engine::PauseAndGiveBack, &ignored},
                        {"resume", &Engine::Resume, &ignored},
                        {"resume", &Engine::Resume, &ignored},
                        {"cancel", &Engine::Cancel, &job.cancelled},
                        {"finish", &Engine::Finish, &job.finished}};
  const Verb& verb = verbs[Draw(7)];
  const Result answer =
      server_->Call<Result>([&] { return (server_->engine().*verb.call)(id); });
  NoteAnswer(absl::StrCat(verb.name, " ", id), answer.status());
  if (answer.ok()) *verb.asked = true;
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

void History::Restart() {
  ++counts_.crashes;
  Say("the daemon is killed");
  server_->Crash();
  lost_.clear();
  for (auto& [id, job] : jobs_) job.updates.clear();
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

void History::DoSomething() {
  const uint64_t what = Draw(100);
  if (what < 35) return Submit();
  if (what < 40) return SubmitAgain();
  if (what < 48) return SetPriority();
  if (what < 70) return Ask();
  if (what < 82) return HitWorker();
  if (what < 88) return LendOrReturn();
  if (what < 94) return Restart();
  store_fault_.ok() ? BreakStore() : MendStore();
}

// --- the end ---

bool History::ResumeAll() {
  bool all_final = true;
  for (auto& [id, job] : jobs_) {
    all_final &= IsFinal(job.state);
    if (job.state != JobState::kPaused) continue;
    if (job.gives_way) Break(absl::StrCat(id, " gave way and stays PAUSED"));
    server_->Call<Result>([&, id = id] { return server_->engine().Resume(id); })
        .IgnoreError();
  }
  return all_final;
}

void History::EndAll() {
  MendStore();
  Say("nothing happens any more");
  ReturnAll();
  Pass(2 * kLongestStoreRetry);
  const absl::Time latest = server_->now() + kMostWait;
  while (broken_.ok() && !ResumeAll()) {
    if (server_->now() > latest) return Break("jobs do not end");
    Pass(absl::Seconds(20));
  }
}

void History::CheckEnds() {
  if (server_->arena().used_bytes() != free_arena_bytes_) {
    Break(absl::StrCat("the arena has ", server_->arena().used_bytes(),
                       " bytes with no job, ", free_arena_bytes_,
                       " at the start"));
  }
  for (const auto& [id, job] : jobs_) {
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
      Break(absl::StrCat(id, " is ", JobStateName(record->state), ": ",
                         record->message));
    } else if (job.cancelled) {
      continue;
    } else if (!job.finished && record->progress.step != job.steps) {
      Break(absl::StrCat(id, " has ", record->progress.step, " steps of ",
                         job.steps));
    } else if (!std::filesystem::exists(record->output_path)) {
      Break(absl::StrCat(id, " has no result"));
    }
  }
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
