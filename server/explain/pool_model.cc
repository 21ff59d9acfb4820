#include "server/explain/pool_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "scheduler/forecast/fill_in.h"

namespace roundhouse {
namespace {

bool IsEnding(const ActiveJob& job) {
  return job.state == JobState::kFinalizing ||
         job.state == JobState::kPausing || job.state == JobState::kCancelling;
}

bool MayEverStart(const PoolSnapshot& snapshot, const JobOwner& owner) {
  return MayHave(snapshot.sharing.gpu_hours, owner, snapshot.used.gpu_hours, 1);
}

ForecastJob ModelOf(const PoolSnapshot& snapshot, const ActiveJob& job) {
  using GivesWay = ForecastJob::GivesWay;
  ForecastJob model{.owner = job.owner,
                    .priority = job.priority,
                    .host_bytes = job.rests ? 0 : job.host_bytes,
                    .gives_way = GivesWay::kMayNot,
                    .number = JobNumber(job.id).value_or(0)};
  if (job.waits || job.leaves) model.place = ForecastJob::Place::kNone;
  if (job.waits) {
    model.most_devices = 0;
    return model;
  }
  // Where it is to start again.
  if (!MayEverStart(snapshot, job.owner)) {
    model.start = ForecastJob::Start::kMayNot;
  }
  const bool comes_back = job.leaves && job.comes_back;
  const bool ends = IsEnding(job) && !comes_back;
  if (comes_back) model.gives_way = GivesWay::kDoes;
  if (!IsEnding(job) && !job.leaves) model.gives_way = GivesWay::kMay;
  if (ends) model.device_seconds = 0;
  if (!job.length.has_value()) return model;
  const JobLength& length = *job.length;
  model.ending_seconds = length.ending_seconds;
  if (ends) return model;
  if (job.state == JobState::kLoading) {
    model.loading_seconds =
        std::max(0.0, length.loading_seconds - job.loaded_seconds);
  }
  model.reloading_seconds = length.loading_seconds;
  model.device_seconds =
      static_cast<double>(length.steps) * length.step_device_seconds;
  model.most_devices = length.most_devices;
  return model;
}

ForecastJob ModelOf(const PoolSnapshot& snapshot, const WaitingJob& job) {
  ForecastJob model{.owner = job.owner,
                    .priority = job.priority,
                    .ran = job.ran,
                    .number = JobNumber(job.id).value_or(0)};
  if (!MayEverStart(snapshot, job.owner)) {
    model.start = ForecastJob::Start::kMayNot;
  }
  if (job.host_bytes.has_value()) model.host_bytes = OwnBytes(job);
  if (!job.length.has_value()) return model;
  const JobLength& length = *job.length;
  model.loading_seconds = length.loading_seconds;
  model.reloading_seconds = length.loading_seconds;
  model.device_seconds =
      static_cast<double>(length.steps) * length.step_device_seconds;
  model.most_devices = length.most_devices;
  model.ending_seconds = length.ending_seconds;
  return model;
}

}  // namespace

PoolModel ModelOf(const PoolSnapshot& snapshot) {
  PoolModel model;
  model.pool = {
      .devices =
          static_cast<double>(snapshot.devices_up + snapshot.devices_starting),
      .weights = snapshot.sharing.weights,
      .free_places = snapshot.max_running_jobs - snapshot.places_taken,
      .free_bytes = snapshot.memory_available_bytes,
      .running_limits = snapshot.sharing.running,
      .host_limits = snapshot.sharing.host_bytes,
      .running_use = snapshot.used.running,
      .host_use = snapshot.used.host_bytes,
      .project_use = snapshot.project_use,
      .user_use = snapshot.user_use};
  for (const ActiveJob& job : snapshot.active) {
    model.pool.running.push_back(ModelOf(snapshot, job));
  }
  const size_t count = std::min(snapshot.queue.size(), kMostForecast);
  std::vector<size_t> by_age(count);
  std::iota(by_age.begin(), by_age.end(), size_t{0});
  std::stable_sort(by_age.begin(), by_age.end(), [&](size_t a, size_t b) {
    return snapshot.queue[a].age < snapshot.queue[b].age;
  });
  model.places.resize(count);
  for (const size_t place : by_age) {
    const WaitingJob& job = snapshot.queue[place];
    model.places[place] = model.pool.queue.size();
    if (job.id == snapshot.opening) model.pool.opening = model.places[place];
    model.pool.queue.push_back(ModelOf(snapshot, job));
  }
  return model;
}

std::vector<OwnersLimit> ReachedLimits(const PoolSnapshot& snapshot,
                                       const WaitingJob& job) {
  struct Row {
    Limit limit;
    const OwnerLimits& limits;
    const OwnerUse& used;
    int64_t more;
  };
  const Sharing& sharing = snapshot.sharing;
  const SharedUse& used = snapshot.used;
  const Row rows[] = {{Limit::kRunningJobs, sharing.running, used.running, 1},
                      {Limit::kGpuHours, sharing.gpu_hours, used.gpu_hours, 1},
                      {Limit::kHostBytes, sharing.host_bytes, used.host_bytes,
                       static_cast<int64_t>(job.host_bytes.value_or(0))}};
  std::vector<OwnersLimit> reached;
  for (const Row& row : rows) {
    const auto found = FindReached(row.limits, job.owner, row.used, row.more);
    if (found.has_value()) reached.push_back({row.limit, *found, row.more});
  }
  return reached;
}

uint64_t OwnBytes(const WaitingJob& job) {
  const uint64_t bytes = job.host_bytes.value_or(0);
  return bytes - std::min(bytes, job.shared_bytes);
}

bool Fits(const PoolSnapshot& snapshot, const WaitingJob& job) {
  return job.host_bytes.has_value() &&
         OwnBytes(job) <= snapshot.memory_available_bytes;
}

bool MayGiveWay(const ActiveJob& job, const WaitingJob& waiting) {
  return job.priority < waiting.priority && !job.waits && !job.leaves &&
         (job.state == JobState::kRunning || job.state == JobState::kLoading);
}

GoingAhead WhoGoesAhead(const PoolSnapshot& snapshot, const std::string& first,
                        std::optional<absl::Time> promised, MayGoAhead may) {
  const PoolModel model = ModelOf(snapshot);
  std::optional<size_t> first_place;
  FillInQuestion question;
  std::vector<size_t> places;  // of the candidates, in the snapshot's queue
  for (size_t place = 0; place < model.places.size(); ++place) {
    const WaitingJob& job = snapshot.queue[place];
    if (job.id == first) {
      first_place = place;
      question.first = model.places[place];
    } else if (first_place.has_value() && Fits(snapshot, job) &&
               ReachedLimits(snapshot, job).empty() &&
               (may == MayGoAhead::kAll ||
                job.priority >= snapshot.queue[*first_place].priority)) {
      question.candidates.push_back(model.places[place]);
      places.push_back(place);
    }
  }
  if (!first_place.has_value() || model.pool.free_places <= 0) return {};
  if (promised.has_value()) {
    question.promised_seconds = absl::ToDoubleSeconds(*promised - snapshot.now);
  }
  const FillIn found = ChooseFillIn(model.pool, question);
  GoingAhead ahead;
  if (found.first_start.has_value()) {
    ahead.expected = snapshot.now + absl::Seconds(*found.first_start);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    if (question.candidates[i] == found.job) {
      ahead.job = snapshot.queue[places[i]].id;
    }
  }
  return ahead;
}

}  // namespace roundhouse
