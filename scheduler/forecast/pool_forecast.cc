#include "scheduler/forecast/pool_forecast.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/log.h"

namespace roundhouse {
namespace {

// What rounding makes of phases that end together.
constexpr double kTogether = 1e-9;

class PoolRun {
 public:
  PoolRun(const ForecastPool& pool, std::optional<size_t> until)
      : pool_(pool),
        until_(until),
        free_places_(pool.free_places),
        free_bytes_(pool.free_bytes),
        running_use_(pool.running_use),
        host_use_(pool.host_use),
        project_use_(pool.project_use),
        user_use_(pool.user_use) {}

  Forecast Run();

 private:
  // A job that waits or runs, with what is left of it.
  struct Task {
    const ForecastJob* job;
    Expected* expected;
    size_t age = 0;  // the lowest has waited longest
    bool ran = false;
    double loading_seconds = 0;
    double device_seconds = 0;  // infinite: it never ends
  };
  enum class Phase { kLoading, kStepping, kEnding, kLeaving, kOver };
  struct Live {
    Task task;
    Phase phase = Phase::kLoading;
    double left = 0;
    double rate = 1;  // at which `left` falls
    bool has_place = true;
    bool comes_back = false;

    bool steps() const { return phase == Phase::kStepping; }
    bool leaves() const { return phase == Phase::kLeaving; }
  };
  using Tasks = std::vector<Task>;

  void Fill();
  using Order = std::tuple<int, int, int, double, double, size_t>;
  Order OrderOf(const Task& task) const;
  double ProjectTurn(const ForecastJob& job) const;
  double UserTurn(const ForecastJob& job) const;
  bool MayStart(const ForecastJob& job) const;
  Tasks::const_iterator First() const;
  void StartThose();
  void Start(Tasks::const_iterator first);
  bool MayGiveWay(const Live& live, Priority priority) const;
  bool GivesWayFirst(const Live& a, const Live& b) const;
  // Has one leave that is enough alone, else the first.  False: all that may
  // are not enough.
  bool MakeRoom(Priority priority, uint64_t bytes);
  void Leave(Live& live);
  static void EnterNext(Live& live);
  void SetRates();
  // Infinite: nothing ends.
  double NextEnd() const;
  void Pass(double seconds);
  void End(const Live& live);
  Unknown WhyNot(const Task& task) const;
  void SayWhatIsUnknown();

  const ForecastPool& pool_;
  const std::optional<size_t> until_;
  double now_ = 0;
  int64_t free_places_;
  uint64_t free_bytes_;
  OwnerUse running_use_;
  OwnerUse host_use_;
  std::map<std::string, double> project_use_;
  std::map<std::pair<std::string, std::string>, double> user_use_;
  Tasks waiting_;
  std::vector<Live> live_;
  Forecast forecast_;
};

constexpr double kNever = std::numeric_limits<double>::infinity();

template <typename Key>
double Of(const std::map<Key, double>& use, const Key& key) {
  const auto found = use.find(key);
  return found == use.end() ? 0 : found->second;
}

double PoolRun::ProjectTurn(const ForecastJob& job) const {
  return Of(project_use_, job.owner.project) /
         pool_.weights.OfProject(job.owner.project);
}

double PoolRun::UserTurn(const ForecastJob& job) const {
  return Of(user_use_, std::pair(job.owner.project, job.owner.user)) /
         pool_.weights.OfUser(job.owner.user);
}

PoolRun::Order PoolRun::OrderOf(const Task& task) const {
  const ForecastJob& job = *task.job;
  const bool opening =
      pool_.opening.has_value() && &job == &pool_.queue[*pool_.opening];
  if (task.ran) {
    return {-static_cast<int>(job.priority),
            opening ? 0 : 1,
            0,
            static_cast<double>(job.number),
            0,
            task.age};
  }
  return {-static_cast<int>(job.priority),
          opening ? 0 : 1,
          1,
          ProjectTurn(job),
          UserTurn(job),
          task.age};
}

bool PoolRun::MayStart(const ForecastJob& job) const {
  return job.start == ForecastJob::Start::kMay &&
         MayHave(pool_.running_limits, job.owner, running_use_, 1) &&
         MayHave(pool_.host_limits, job.owner, host_use_,
                 static_cast<int64_t>(job.host_bytes.value_or(0)));
}

PoolRun::Tasks::const_iterator PoolRun::First() const {
  auto first = waiting_.end();
  for (auto task = waiting_.begin(); task != waiting_.end(); ++task) {
    if (!MayStart(*task->job)) continue;
    if (first == waiting_.end() || OrderOf(*task) < OrderOf(*first)) {
      first = task;
    }
  }
  return first;
}

void PoolRun::StartThose() {
  while (true) {
    const auto first = First();
    if (first == waiting_.end()) return;
    const ForecastJob& job = *first->job;
    if (!job.host_bytes.has_value()) return;
    if (free_places_ <= 0 && !MakeRoom(job.priority, 0)) return;
    // With no job running it starts, and fails.
    if (*job.host_bytes > free_bytes_ && !live_.empty()) {
      // One at a time is saved for its memory.
      if (std::none_of(live_.begin(), live_.end(),
                       [](const Live& live) { return live.leaves(); })) {
        MakeRoom(job.priority, *job.host_bytes - free_bytes_);
      }
      return;
    }
    Start(first);
  }
}

void PoolRun::Start(Tasks::const_iterator first) {
  const Task task = *first;
  const ForecastJob& job = *task.job;
  waiting_.erase(first);
  if (!task.expected->start.has_value()) task.expected->start = now_;
  if (*job.host_bytes > free_bytes_) {
    task.expected->end = now_;
    return;
  }
  --free_places_;
  free_bytes_ -= *job.host_bytes;
  running_use_.Add(job.owner, 1);
  host_use_.Add(job.owner, static_cast<int64_t>(*job.host_bytes));
  live_.push_back({task, Phase::kLoading, task.loading_seconds});
}

bool PoolRun::MayGiveWay(const Live& live, Priority priority) const {
  return live.has_place && live.task.job->priority < priority &&
         live.task.job->gives_way == ForecastJob::GivesWay::kMay &&
         (live.phase == Phase::kLoading || live.steps());
}

bool PoolRun::GivesWayFirst(const Live& a, const Live& b) const {
  const auto order = [this](const Live& live) {
    const ForecastJob& job = *live.task.job;
    return std::tuple(static_cast<int>(job.priority), -ProjectTurn(job),
                      -UserTurn(job), -job.number);
  };
  return order(a) < order(b);
}

bool PoolRun::MakeRoom(Priority priority, uint64_t bytes) {
  Live* first = nullptr;
  Live* enough = nullptr;
  uint64_t all = 0;
  for (Live& live : live_) {
    if (!MayGiveWay(live, priority)) continue;
    const uint64_t gives = live.task.job->host_bytes.value_or(0);
    all += gives;
    if (first == nullptr || GivesWayFirst(live, *first)) first = &live;
    if (gives < bytes) continue;
    if (enough == nullptr || GivesWayFirst(live, *enough)) enough = &live;
  }
  if (first == nullptr || all < bytes) return false;
  Leave(enough != nullptr ? *enough : *first);
  return true;
}

void PoolRun::Leave(Live& live) {
  const ForecastJob& job = *live.task.job;
  if (live.steps()) live.task.device_seconds = live.left;
  live.task.loading_seconds = job.reloading_seconds;
  live.phase = Phase::kLeaving;
  live.left = job.ending_seconds;
  live.rate = 1;
  live.comes_back = true;
  live.has_place = false;
  ++free_places_;
  running_use_.Remove(job.owner, 1);
}

void PoolRun::EnterNext(Live& live) {
  switch (live.phase) {
    case Phase::kLoading:
      live.phase = Phase::kStepping;
      live.left = live.task.device_seconds;
      break;
    case Phase::kStepping:
      live.phase = Phase::kEnding;
      live.left = live.task.job->ending_seconds;
      break;
    default:
      live.phase = Phase::kOver;
      live.left = kNever;
  }
}

void PoolRun::SetRates() {
  std::vector<SharingJob> sharing;
  for (Live& live : live_) {
    live.rate = 1;
    if (!live.steps()) continue;
    const ForecastJob& job = *live.task.job;
    sharing.push_back({job.owner, job.priority, job.most_devices});
  }
  const std::vector<double> rates =
      SharedRates(sharing, pool_.devices, pool_.weights);
  size_t next = 0;
  for (Live& live : live_) {
    if (live.steps()) live.rate = rates[next++];
  }
}

double PoolRun::NextEnd() const {
  double next = kNever;
  for (const Live& live : live_) {
    if (live.rate > 0) next = std::min(next, live.left / live.rate);
  }
  return next;
}

void PoolRun::Pass(double seconds) {
  now_ += seconds;
  for (Live& live : live_) {
    if (live.steps()) {
      const JobOwner& owner = live.task.job->owner;
      const double served = live.rate * seconds;
      project_use_[owner.project] += served;
      user_use_[{owner.project, owner.user}] += served;
    }
    const bool over =
        live.rate > 0 && live.left / live.rate <= seconds * (1 + kTogether);
    if (over) {
      EnterNext(live);
    } else {
      live.left -= live.rate * seconds;
    }
  }
  for (const Live& live : live_) {
    if (live.phase == Phase::kOver) End(live);
  }
  std::erase_if(live_,
                [](const Live& live) { return live.phase == Phase::kOver; });
}

void PoolRun::End(const Live& live) {
  const ForecastJob& job = *live.task.job;
  const uint64_t bytes = job.host_bytes.value_or(0);
  free_bytes_ += bytes;
  host_use_.Remove(job.owner, static_cast<int64_t>(bytes));
  if (live.has_place) {
    ++free_places_;
    running_use_.Remove(job.owner, 1);
  }
  if (!live.comes_back) {
    live.task.expected->end = now_;
    return;
  }
  waiting_.push_back(live.task);
  waiting_.back().ran = true;
}

// Why one still waits where nothing more ends.
Unknown PoolRun::WhyNot(const Task& task) const {
  if (pool_.devices <= 0) return Unknown::kNoDevice;
  if (task.job->start == ForecastJob::Start::kMayNot) return Unknown::kMayNot;
  const auto first = First();
  const bool needs =
      first != waiting_.end() && !first->job->host_bytes.has_value();
  return needs ? Unknown::kNeed : Unknown::kLength;
}

void PoolRun::SayWhatIsUnknown() {
  const Unknown no_end =
      pool_.devices > 0 ? Unknown::kLength : Unknown::kNoDevice;
  for (const Live& live : live_) live.task.expected->end_unknown = no_end;
  for (const Task& task : waiting_) {
    const Unknown why = WhyNot(task);
    if (!task.expected->start.has_value()) task.expected->start_unknown = why;
    task.expected->end_unknown = why;
  }
}

void PoolRun::Fill() {
  const auto task = [](const ForecastJob& job, Expected& expected, size_t age) {
    return Task{
        &job,    &expected,           age,
        job.ran, job.loading_seconds, job.device_seconds.value_or(kNever)};
  };
  forecast_.running.resize(pool_.running.size());
  forecast_.queue.resize(pool_.queue.size());
  for (size_t i = 0; i < pool_.queue.size(); ++i) {
    waiting_.push_back(task(pool_.queue[i], forecast_.queue[i], i));
  }
  for (size_t i = 0; i < pool_.running.size(); ++i) {
    const ForecastJob& job = pool_.running[i];
    forecast_.running[i].start = 0;
    Live live{task(job, forecast_.running[i], pool_.queue.size() + i),
              Phase::kLoading, job.loading_seconds};
    live.has_place = job.place == ForecastJob::Place::kTaken;
    if (job.gives_way == ForecastJob::GivesWay::kDoes) {
      live.task.loading_seconds = job.reloading_seconds;
      live.phase = Phase::kLeaving;
      live.left = job.ending_seconds;
      live.comes_back = true;
    }
    live_.push_back(live);
  }
}

Forecast PoolRun::Run() {
  Fill();
  while (true) {
    StartThose();
    if (until_.has_value() && forecast_.queue[*until_].start.has_value()) break;
    SetRates();
    // Each time a phase of a job ends: three for each, and two more whenever it
    // gives way, which one does once for each that starts at most.
    const double next = NextEnd();
    if (std::isinf(next)) break;
    Pass(next);
  }
  SayWhatIsUnknown();
  return std::move(forecast_);
}

}  // namespace

Forecast ForecastOf(const ForecastPool& pool, std::optional<size_t> until) {
  ROUNDHOUSE_CHECK(pool.queue.size() <= kMostForecast);
  return PoolRun(pool, until).Run();
}

}  // namespace roundhouse
