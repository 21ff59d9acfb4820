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
  enum class Phase { kLoading, kStepping, kEnding, kOver };
  struct Live {
    const ForecastJob* job;
    Expected* expected;
    Phase phase = Phase::kLoading;
    double left = 0;
    double rate = 1;  // at which `left` falls

    bool steps() const { return phase == Phase::kStepping; }
  };

  using Order = std::tuple<int, int, double, double, size_t>;
  Order OrderOf(size_t place) const;
  bool MayStart(const ForecastJob& job) const;
  std::optional<size_t> First() const;
  void StartThose();
  void Start(size_t place);
  static void EnterNext(Live& live);
  void SetRates();
  // Infinite: nothing ends.
  double NextEnd() const;
  void Pass(double seconds);
  void End(const Live& live);
  Unknown WhyNot(size_t place) const;
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
  std::vector<size_t> waiting_;  // places in the queue
  std::vector<Live> live_;
  Forecast forecast_;
};

template <typename Key>
double Of(const std::map<Key, double>& use, const Key& key) {
  const auto found = use.find(key);
  return found == use.end() ? 0 : found->second;
}

PoolRun::Order PoolRun::OrderOf(size_t place) const {
  const ForecastJob& job = pool_.queue[place];
  const JobOwner& owner = job.owner;
  return {
      job.priority == Priority::kUrgent ? 0 : 1, pool_.opening == place ? 0 : 1,
      Of(project_use_, owner.project) / pool_.weights.OfProject(owner.project),
      Of(user_use_, std::pair(owner.project, owner.user)) /
          pool_.weights.OfUser(owner.user),
      place};
}

bool PoolRun::MayStart(const ForecastJob& job) const {
  return job.start == ForecastJob::Start::kMay &&
         MayHave(pool_.running_limits, job.owner, running_use_, 1) &&
         MayHave(pool_.host_limits, job.owner, host_use_,
                 static_cast<int64_t>(job.host_bytes.value_or(0)));
}

std::optional<size_t> PoolRun::First() const {
  std::optional<size_t> first;
  for (const size_t place : waiting_) {
    if (!MayStart(pool_.queue[place])) continue;
    if (!first.has_value() || OrderOf(place) < OrderOf(*first)) first = place;
  }
  return first;
}

void PoolRun::StartThose() {
  while (free_places_ > 0) {
    const std::optional<size_t> first = First();
    if (!first.has_value()) return;
    const ForecastJob& job = pool_.queue[*first];
    if (!job.host_bytes.has_value()) return;
    // With no job running it starts, and fails.
    if (*job.host_bytes > free_bytes_ && !live_.empty()) return;
    Start(*first);
  }
}

void PoolRun::Start(size_t place) {
  const ForecastJob& job = pool_.queue[place];
  std::erase(waiting_, place);
  Expected& expected = forecast_.queue[place];
  expected.start = now_;
  if (*job.host_bytes > free_bytes_) {
    expected.end = now_;
    return;
  }
  --free_places_;
  free_bytes_ -= *job.host_bytes;
  running_use_.Add(job.owner, 1);
  host_use_.Add(job.owner, static_cast<int64_t>(*job.host_bytes));
  live_.push_back({&job, &expected, Phase::kLoading, job.loading_seconds});
}

void PoolRun::EnterNext(Live& live) {
  switch (live.phase) {
    case Phase::kLoading:
      live.phase = Phase::kStepping;
      live.left = live.job->device_seconds.value_or(
          std::numeric_limits<double>::infinity());
      break;
    case Phase::kStepping:
      live.phase = Phase::kEnding;
      live.left = live.job->ending_seconds;
      break;
    default:
      live.phase = Phase::kOver;
      live.left = std::numeric_limits<double>::infinity();
  }
}

void PoolRun::SetRates() {
  std::vector<SharingJob> sharing;
  for (Live& live : live_) {
    live.rate = 1;
    if (!live.steps()) continue;
    sharing.push_back(
        {live.job->owner, live.job->priority, live.job->most_devices});
  }
  const std::vector<double> rates =
      SharedRates(sharing, pool_.devices, pool_.weights);
  size_t next = 0;
  for (Live& live : live_) {
    if (live.steps()) live.rate = rates[next++];
  }
}

double PoolRun::NextEnd() const {
  double next = std::numeric_limits<double>::infinity();
  for (const Live& live : live_) {
    if (live.rate > 0) next = std::min(next, live.left / live.rate);
  }
  return next;
}

void PoolRun::Pass(double seconds) {
  now_ += seconds;
  for (Live& live : live_) {
    if (live.steps()) {
      const JobOwner& owner = live.job->owner;
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
  const ForecastJob& job = *live.job;
  const uint64_t bytes = job.host_bytes.value_or(0);
  live.expected->end = now_;
  free_bytes_ += bytes;
  if (job.place == ForecastJob::Place::kTaken) {
    ++free_places_;
    running_use_.Remove(job.owner, 1);
  }
  host_use_.Remove(job.owner, static_cast<int64_t>(bytes));
}

// Why one still waits where nothing more ends.
Unknown PoolRun::WhyNot(size_t place) const {
  const ForecastJob& job = pool_.queue[place];
  if (pool_.devices <= 0) return Unknown::kNoDevice;
  if (job.start == ForecastJob::Start::kMayNot) return Unknown::kMayNot;
  const std::optional<size_t> first = First();
  const bool needs = free_places_ > 0 && first.has_value() &&
                     !pool_.queue[*first].host_bytes.has_value();
  return needs ? Unknown::kNeed : Unknown::kLength;
}

void PoolRun::SayWhatIsUnknown() {
  const Unknown no_end =
      pool_.devices > 0 ? Unknown::kLength : Unknown::kNoDevice;
  for (Expected& expected : forecast_.running) {
    if (!expected.end.has_value()) expected.end_unknown = no_end;
  }
  for (size_t place = 0; place < forecast_.queue.size(); ++place) {
    Expected& expected = forecast_.queue[place];
    if (!expected.start.has_value()) {
      expected.start_unknown = WhyNot(place);
      expected.end_unknown = expected.start_unknown;
    } else if (!expected.end.has_value()) {
      expected.end_unknown = no_end;
    }
  }
}

Forecast PoolRun::Run() {
  forecast_.running.resize(pool_.running.size());
  forecast_.queue.resize(pool_.queue.size());
  for (size_t i = 0; i < pool_.running.size(); ++i) {
    forecast_.running[i].start = 0;
    live_.push_back({&pool_.running[i], &forecast_.running[i], Phase::kLoading,
                     pool_.running[i].loading_seconds});
  }
  for (size_t i = 0; i < pool_.queue.size(); ++i) waiting_.push_back(i);
  while (true) {
    StartThose();
    if (until_.has_value() && forecast_.queue[*until_].start.has_value()) break;
    SetRates();
    // Each time a phase of a job ends: three for each at most.
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
