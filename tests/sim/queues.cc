#include "tests/sim/queues.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/job_state.h"
#include "base/log.h"
#include "server/explain/explanation.h"

namespace roundhouse::sim {
namespace {

constexpr int kActions = 24;
// A job whose turn has come is opened in less.
constexpr absl::Duration kLongestTurn = absl::Seconds(30);
constexpr absl::Duration kMostWait = absl::Hours(3);
// Shorter waits say nothing of how well they were foreseen.
constexpr absl::Duration kLeastWait = absl::Seconds(5);

constexpr char kJob[] =
    "model_name_or_path: m\nmodel_init: random\ndataset: d.jsonl\n"
    "save_steps: 1000\n";
// What differs in what steps do and need.
constexpr const char* kKinds[] = {
    "batch_size: 4\nmicro_batch_size: 1\nmax_length: 8\n",
    "batch_size: 16\nmicro_batch_size: 4\nmax_length: 64\n",
    "batch_size: 64\nmicro_batch_size: 16\nmax_length: 64\n"};

using Result = absl::StatusOr<JobRecord>;

std::string IdOf(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

bool LacksMemory(
    const google::protobuf::RepeatedPtrField<v1::Obstacle>& obstacles) {
  return std::any_of(obstacles.begin(), obstacles.end(),
                     [](const v1::Obstacle& obstacle) {
                       return obstacle.kind() == v1::OBSTACLE_HOST_MEMORY;
                     });
}

// What of an answer is looked at.
std::string ShortText(const v1::JobExplanation& why) {
  std::string text;
  for (const v1::Obstacle& obstacle : why.obstacles()) {
    absl::StrAppend(&text, " ", v1::ObstacleKind_Name(obstacle.kind()));
    if (!obstacle.has_memory()) continue;
    absl::StrAppend(&text, " ", obstacle.memory().needed_bytes(), "/",
                    obstacle.memory().available_bytes());
  }
  for (const v1::JobBefore& before : why.queue().before()) {
    absl::StrAppend(&text, " ", IdOf(before.job()),
                    before.passed_over() ? " (over)" : "");
  }
  return text;
}

}  // namespace

void Queues::Counts::Add(const Counts& other) {
  jobs += other.jobs;
  answers += other.answers;
  starts += other.starts;
  ahead += other.ahead;
  overtaken += other.overtaken;
  memory += other.memory;
  limits += other.limits;
  places += other.places;
  unknown += other.unknown;
  errors.insert(errors.end(), other.errors.begin(), other.errors.end());
}

Queues::Queues(uint64_t seed, const std::string& root)
    : root_(root), random_(seed) {
  server_ =
      std::make_unique<SimServer>(OptionsOf(std::filesystem::canonical(root_)));
}

Queues::~Queues() {
  server_.reset();
  std::filesystem::remove_all(root_);
}

SimServerOptions Queues::OptionsOf(const std::string& root) {
  devices_ = static_cast<int>(1 + Draw(3));
  max_of_user_ = static_cast<int64_t>(1 + Draw(3));
  SimServerOptions options;
  options.root = root;
  options.workers.device_count = devices_;
  options.workers.seed = random_();
  options.workers.layer_time = absl::Milliseconds(10 + Draw(30));
  options.workers.lengths = SimWorkersOptions::Lengths::kEqual;
  options.host_bytes = (uint64_t{9} << 20) + Draw(uint64_t{20} << 20);
  options.max_running_jobs = static_cast<int>(1 + Draw(5));
  options.sharing.running.other_users = max_of_user_;
  if (Draw(2) == 0) {
    options.sharing.weights.users["user0"] = 1 + static_cast<double>(Draw(3));
  }
  return options;
}

void Queues::Say(const std::string& what) {
  log_.push_back(absl::StrCat(
      absl::ToDoubleSeconds(server_->now() - absl::FromUnixSeconds(1.7e9)),
      " s: ", what));
}

void Queues::Break(const std::string& what) {
  Say(what);
  if (broken_.ok()) broken_ = absl::InternalError(log_.back());
}

// --- what happens ---

void Queues::Submit() {
  SubmitRequest request;
  request.text =
      absl::StrCat(kJob, kKinds[Draw(3)], "max_steps: ", 3 + Draw(20), "\n");
  const uint64_t drawn = Draw(8);
  if (drawn < 3) request.priority = kPriorities[drawn];
  request.file_name = "job.yaml";
  request.caller.admin = true;
  request.caller.user = absl::StrCat("user", Draw(4));
  request.caller.principal = "user:" + request.caller.user;
  request.request_id = absl::StrCat("request-", submits_++);
  const auto made = server_->Call<absl::StatusOr<SubmitResult>>(
      [&] { return server_->engine().Submit(request); });
  if (!made.ok()) return Break(std::string(made.status().message()));
  ++counts_.jobs;
  jobs_[made->job.id].owner = {request.project, request.caller.user};
  Say(absl::StrCat(made->job.id, " of ", request.caller.user, " in ",
                   request.project, " is submitted: ", request.text));
}

void Queues::CancelOne() {
  if (jobs_.empty()) return;
  const std::string id =
      std::next(jobs_.begin(), static_cast<int64_t>(Draw(jobs_.size())))->first;
  const Result done =
      server_->Call<Result>([&] { return server_->engine().Cancel(id); });
  Say(absl::StrCat("cancel ", id, ": ", std::string(done.status().message())));
}

void Queues::PutForward() {
  if (jobs_.empty()) return;
  const std::string id =
      std::next(jobs_.begin(), static_cast<int64_t>(Draw(jobs_.size())))->first;
  const Priority priority = kPriorities[Draw(std::size(kPriorities))];
  const Result done = server_->Call<Result>([&] {
    return server_->engine().SetPriority(id, {.priority = priority});
  });
  Say(absl::StrCat(id, " is to be ", PriorityName(priority), ": ",
                   std::string(done.status().message())));
}

void Queues::DoSomething() {
  ++changes_;
  const uint64_t what = Draw(10);
  if (what < 7) return Submit();
  if (what < 8) return CancelOne();
  PutForward();
}

void Queues::Pass(absl::Duration time) {
  while (time > absl::ZeroDuration() && broken_.ok()) {
    AskAll();
    const absl::Duration step = std::min(time, absl::Seconds(1));
    server_->RunFor(step, [this] { Look(); });
    time -= step;
  }
}

void Queues::Look() {
  const uint64_t gap = server_->arena().largest_gap_bytes();
  for (auto& [id, job] : jobs_) {
    if (!job.answer.has_value()) continue;
    job.answer->most_bytes = std::max(job.answer->most_bytes, gap);
  }
  if (!server_->store_told()) return;
  while (true) {
    const auto changes = server_->store().ChangesAfter(revision_, "", 100);
    if (!changes.ok()) return Break(std::string(changes.status().message()));
    for (const JobChange& change : *changes) {
      revision_ = change.event.revision;
      const std::string& id = change.event.job_id;
      Job& job = jobs_[id];
      if (change.event.state != job.state) {
        OnState(id, job, change.event);
      }
    }
    if (changes->size() < 100) return;
  }
}

void Queues::OnState(const std::string& id, Job& job, const JobEvent& event) {
  const JobState state = event.state;
  Say(absl::StrCat(id, " is ", JobStateName(state), " ",
                   JobReasonName(event.reason)));
  const JobState was = job.state;
  job.state = state;
  job.gives_way =
      state == JobState::kPausing && event.reason == JobReason::kGivesWay;
  if (state == JobState::kQueued) ++changes_;
  if (state == JobState::kFailed) Break(absl::StrCat(id, " failed"));
  // Its place is another's at once, its memory once it is saved.
  if (job.gives_way || (IsActive(was) && !IsActive(state))) {
    ends_.push_back({job.owner.user, server_->now()});
  }
  if (state != JobState::kLoading) return;
  CheckStart(id, job);
  if (!job.expected.has_value()) return;
  const absl::Duration wait = *job.expected - job.asked;
  if (wait < kLeastWait) return;
  counts_.errors.push_back(
      absl::FDivDuration(server_->now() - *job.expected, wait));
}

// --- what is said, and what came of it ---

v1::JobExplanation Queues::Ask(const std::string& id) {
  const auto pool = server_->Call<absl::StatusOr<PoolSnapshot>>(
      [&] { return server_->engine().PoolFor(id); });
  if (!pool.ok()) {
    Break(std::string(pool.status().message()));
    return {};
  }
  ++counts_.answers;
  return ExplanationOf(*pool, std::nullopt,
                       {[](const std::string&) { return true; }});
}

void Queues::AskAll() {
  Look();
  for (auto& [id, job] : jobs_) {
    if (job.state != JobState::kQueued) continue;
    const uint64_t gap = server_->arena().largest_gap_bytes();
    Answer answer{.time = server_->now(),
                  .changes = changes_,
                  .gap_bytes = gap,
                  .most_bytes = gap,
                  .why = Ask(id)};
    Look();
    // It may have begun while it was asked.
    if (job.state != JobState::kQueued || !answer.why.has_queue()) continue;
    Count(answer);
    const std::string said = ShortText(answer.why);
    if (!job.answer.has_value() || said != ShortText(job.answer->why)) {
      Say(absl::StrCat(id, " says:", said));
    }
    job.answer = std::move(answer);
    CheckTurn(id, job);
  }
}

void Queues::Count(const Answer& answer) {
  for (const v1::Obstacle& obstacle : answer.why.obstacles()) {
    counts_.memory += obstacle.kind() == v1::OBSTACLE_HOST_MEMORY ? 1 : 0;
    counts_.limits += obstacle.kind() == v1::OBSTACLE_LIMIT ? 1 : 0;
    counts_.places += obstacle.kind() == v1::OBSTACLE_MAX_RUNNING_JOBS ? 1 : 0;
  }
}

void Queues::CheckTurn(const std::string& id, Job& job) {
  const v1::JobExplanation& why = job.answer->why;
  if (why.obstacles_size() != 1 ||
      why.obstacles(0).kind() != v1::OBSTACLE_BEING_OPENED) {
    job.turn_since.reset();
    return;
  }
  if (!job.turn_since.has_value()) job.turn_since = server_->now();
  if (server_->now() - *job.turn_since > kLongestTurn) {
    Break(absl::StrCat(id, " does not start though its turn has come"));
  }
}

bool Queues::Ended(const std::string& user, absl::Time since) const {
  return std::any_of(ends_.begin(), ends_.end(), [&](const End& end) {
    return end.time >= since && (user.empty() || end.user == user);
  });
}

bool Queues::IsAtHisLimit(const JobOwner& owner, const std::string& but) const {
  const auto running =
      std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
        return entry.first != but && IsActive(entry.second.state) &&
               !entry.second.gives_way && entry.second.owner.user == owner.user;
      });
  return running >= max_of_user_;
}

// All devices work for him, with the least weight that anybody has.
bool Queues::MayHaveUsedMore(const v1::JobBefore& before,
                             absl::Time since) const {
  if (before.reason() != v1::ORDER_REASON_PROJECT_HAD_LESS &&
      before.reason() != v1::ORDER_REASON_USER_HAD_LESS) {
    // Equal ones stay so only while neither uses anything.
    return before.reason() == v1::ORDER_REASON_OLDER;
  }
  // What a slot took is charged when it is done.
  const double most = devices_ * absl::ToDoubleSeconds(server_->now() - since +
                                                       absl::Seconds(4));
  return (before.job_hours() - before.its_hours()) * 3600 <= most;
}

void Queues::CheckBefore(const std::string& id, const Answer& answer) {
  const v1::QueuePlace& queue = answer.why.queue();
  // The first may have begun since, and another one be the first.
  const bool first_lacks_memory =
      LacksMemory(queue.first_obstacles()) ||
      std::any_of(queue.before().begin(), queue.before().end(),
                  [this](const v1::JobBefore& before) {
                    const Job& other = jobs_.at(IdOf(before.job()));
                    return other.state == JobState::kQueued &&
                           other.answer.has_value() &&
                           LacksMemory(other.answer->why.obstacles());
                  });
  for (const v1::JobBefore& before : queue.before()) {
    const Job& other = jobs_.at(IdOf(before.job()));
    if (before.passed_over() || other.state != JobState::kQueued) continue;
    // What began since the answer may have used up its owner's part.
    if (IsAtHisLimit(other.owner, id)) continue;
    const JobOwner& own = jobs_.at(id).owner;
    const bool same_owner =
        other.owner.user == own.user && other.owner.project == own.project;
    if (first_lacks_memory) {
      ++counts_.ahead;
    } else if (!same_owner && MayHaveUsedMore(before, answer.time)) {
      ++counts_.overtaken;
    } else {
      Break(absl::StrCat(id, " starts before ", before.job(), ", which ",
                         v1::OrderReason_Name(before.reason())));
    }
  }
}

void Queues::CheckObstacle(const std::string& id, const Job& job,
                           const v1::Obstacle& obstacle) {
  const absl::Time since = job.answer->time;
  switch (obstacle.kind()) {
    case v1::OBSTACLE_HOST_MEMORY:
      // A job that runs may give back a part, or move it.
      if (!Ended("", since) && !obstacle.memory().being_freed() &&
          job.answer->most_bytes <= job.answer->gap_bytes) {
        Break(absl::StrCat(id, " starts though nobody gave memory back"));
      }
      return;
    case v1::OBSTACLE_MAX_RUNNING_JOBS:
      if (!Ended("", since)) {
        Break(absl::StrCat(id, " starts though no job has ended"));
      }
      return;
    case v1::OBSTACLE_LIMIT:
      if (obstacle.limit().limit() != "running_jobs" ||
          obstacle.limit().subject() != "everybody" ||
          !Ended(job.owner.user, since)) {
        Break(absl::StrCat(id, " starts at the limit ",
                           obstacle.limit().DebugString()));
      }
      return;
    case v1::OBSTACLE_JOBS_BEFORE:
    case v1::OBSTACLE_BEING_OPENED:
      return;
    default:
      Break(absl::StrCat(id, " waits with ",
                         v1::ObstacleKind_Name(obstacle.kind())));
  }
}

void Queues::CheckStart(const std::string& id, const Job& job) {
  if (!job.answer.has_value() || job.answer->changes != changes_) return;
  ++counts_.starts;
  CheckBefore(id, *job.answer);
  for (const v1::Obstacle& obstacle : job.answer->why.obstacles()) {
    CheckObstacle(id, job, obstacle);
  }
}

// --- the end ---

bool Queues::AllOver() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return IsFinal(entry.second.state);
  });
}

void Queues::CompareStarts() {
  AskAll();
  for (auto& [id, job] : jobs_) {
    if (job.state != JobState::kQueued || !job.answer.has_value()) continue;
    const v1::ExpectedTimes& expected = job.answer->why.expected();
    if (!expected.has_start()) {
      ++counts_.unknown;
      continue;
    }
    job.expected = absl::FromUnixSeconds(expected.start().seconds());
    job.asked = server_->now();
    Say(absl::StrCat(id, " is expected to start in ",
                     absl::FormatDuration(*job.expected - job.asked)));
  }
}

absl::Status Queues::Run() {
  server_->Start();
  for (int i = 0; i < kActions && broken_.ok(); ++i) {
    Pass(absl::Seconds(static_cast<double>(Draw(8))));
    DoSomething();
  }
  // What is validated comes into the queue.
  Pass(absl::Seconds(10));
  CompareStarts();
  const absl::Time latest = server_->now() + kMostWait;
  while (broken_.ok() && !AllOver()) {
    if (server_->now() > latest) Break("jobs do not end");
    Pass(absl::Seconds(20));
  }
  return broken_;
}

}  // namespace roundhouse::sim
