#include "server/explain/obstacles.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/explain/explanation.h"
#include "server/explain/pool_model.h"
#include "server/limits/limit_table.h"

namespace roundhouse {
namespace {

constexpr double kHour = 3600;

std::string SubjectOf(LimitOf of, const JobOwner& owner) {
  switch (of) {
    case LimitOf::kServer:
      return kServer;
    case LimitOf::kProject:
      return absl::StrCat("project:", owner.project);
    case LimitOf::kUser:
      return absl::StrCat("user:", owner.user);
    case LimitOf::kEachUser:
      return kEverybody;
  }
  return "";
}

v1::Obstacle Of(v1::ObstacleKind kind) {
  v1::Obstacle obstacle;
  obstacle.set_kind(kind);
  return obstacle;
}

// What lets nothing start at all.
void AddCommon(const PoolSnapshot& snapshot, Obstacles& all) {
  if (snapshot.stopping) *all.Add() = Of(v1::OBSTACLE_DAEMON_STOPS);
  if (!snapshot.reserve_held) *all.Add() = Of(v1::OBSTACLE_DISK_RESERVE);
}

void AddLimits(const PoolSnapshot& snapshot, const WaitingJob& job,
               Obstacles& all) {
  for (const OwnersLimit& found : ReachedLimits(snapshot, job)) {
    v1::Obstacle obstacle = Of(v1::OBSTACLE_LIMIT);
    v1::ReachedLimit& limit = *obstacle.mutable_limit();
    limit.set_limit(InfoOf(found.limit).name);
    limit.set_subject(SubjectOf(found.reached.of, job.owner));
    limit.set_value(found.reached.value);
    limit.set_used(found.reached.used);
    limit.set_more(found.more);
    *all.Add() = obstacle;
  }
}

v1::MissingMemory MissingMemory(const PoolSnapshot& snapshot,
                                const WaitingJob& job, const NameOf& name_of) {
  v1::MissingMemory memory;
  memory.set_needed_bytes(static_cast<int64_t>(OwnBytes(job)));
  memory.set_available_bytes(
      static_cast<int64_t>(snapshot.memory_available_bytes));
  memory.set_limit_bytes(static_cast<int64_t>(snapshot.memory_limit_bytes));
  const uint64_t used = snapshot.memory_used_bytes;
  memory.set_free_bytes(
      static_cast<int64_t>(snapshot.memory_limit_bytes -
                           std::min(snapshot.memory_limit_bytes, used)));
  std::vector<const ActiveJob*> holders;
  for (const ActiveJob& active : snapshot.active) {
    if (active.host_bytes > 0) holders.push_back(&active);
  }
  std::stable_sort(holders.begin(), holders.end(),
                   [](const ActiveJob* a, const ActiveJob* b) {
                     return a->host_bytes > b->host_bytes;
                   });
  holders.resize(std::min(holders.size(), kMostExplained));
  uint64_t held = 0;
  for (const ActiveJob* const active : holders) {
    v1::MemoryHolder& holder = *memory.add_holders();
    holder.set_job(name_of(active->id, active->owner.project));
    holder.set_bytes(static_cast<int64_t>(active->host_bytes));
    holder.set_waits(active->waits);
    holder.set_lower_class(MayGiveWay(*active, job));
    holder.set_leaves(active->leaves);
    held += active->host_bytes;
  }
  memory.set_other_bytes(static_cast<int64_t>(used - std::min(used, held)));
  memory.set_being_freed(snapshot.memory_being_freed);
  return memory;
}

// Whether it can have so many bytes more of those that give way.
bool JobsGiveWay(const PoolSnapshot& snapshot, const WaitingJob& job,
                 uint64_t bytes) {
  uint64_t given = 0;
  bool any = false;
  for (const ActiveJob& active : snapshot.active) {
    // One that leaves has no place to give any more.
    if (!MayGiveWay(active, job) && !(active.leaves && bytes > 0)) continue;
    any = true;
    given += active.host_bytes;
  }
  return any && given >= bytes;
}

// What one waits for that nobody is before.
void AddOwn(const PoolSnapshot& snapshot, const WaitingJob& job,
            const NameOf& name_of, Obstacles& all) {
  if (snapshot.places_taken >= snapshot.max_running_jobs) {
    v1::Obstacle obstacle = Of(v1::OBSTACLE_MAX_RUNNING_JOBS);
    obstacle.mutable_limit()->set_value(snapshot.max_running_jobs);
    obstacle.mutable_limit()->set_used(snapshot.places_taken);
    obstacle.mutable_limit()->set_more(1);
    obstacle.set_jobs_give_way(JobsGiveWay(snapshot, job, 0));
    *all.Add() = obstacle;
  }
  // With no job running it starts, and fails.
  if (!job.host_bytes.has_value() || Fits(snapshot, job)) return;
  v1::Obstacle obstacle = Of(v1::OBSTACLE_HOST_MEMORY);
  *obstacle.mutable_memory() = MissingMemory(snapshot, job, name_of);
  obstacle.set_jobs_give_way(JobsGiveWay(
      snapshot, job, OwnBytes(job) - snapshot.memory_available_bytes));
  *all.Add() = obstacle;
}

const WaitingJob* FindAsked(const PoolSnapshot& snapshot) {
  for (const WaitingJob& job : snapshot.queue) {
    if (job.id == snapshot.asked.id) return &job;
  }
  return nullptr;
}

// The first before the asked one that is not passed over; null: none.
const WaitingJob* FirstBefore(const PoolSnapshot& snapshot) {
  for (const WaitingJob& job : snapshot.queue) {
    if (job.id == snapshot.asked.id) return nullptr;
    if (ReachedLimits(snapshot, job).empty()) return &job;
  }
  return nullptr;
}

Obstacles WaitingFor(const PoolSnapshot& snapshot, const WaitingJob& job,
                     const NameOf& name_of) {
  Obstacles all;
  AddLimits(snapshot, job, all);
  if (FirstBefore(snapshot) != nullptr) {
    *all.Add() = Of(v1::OBSTACLE_JOBS_BEFORE);
  }
  AddOwn(snapshot, job, name_of, all);
  if (all.empty()) *all.Add() = Of(v1::OBSTACLE_BEING_OPENED);
  return all;
}

const ActiveJob* FindActive(const PoolSnapshot& snapshot) {
  for (const ActiveJob& job : snapshot.active) {
    if (job.id == snapshot.asked.id) return &job;
  }
  return nullptr;
}

void AddRunning(const PoolSnapshot& snapshot, Obstacles& all) {
  if (snapshot.devices_up == 0) {
    *all.Add() = Of(v1::OBSTACLE_NO_DEVICE);
    return;
  }
  const ActiveJob* const job = FindActive(snapshot);
  if (job == nullptr || !job->has_steps) *all.Add() = Of(v1::OBSTACLE_SAVING);
}

// What it waits for in a state that is not QUEUED; none: it computes.
std::optional<v1::ObstacleKind> KindIn(JobState state) {
  switch (state) {
    case JobState::kValidating:
      return v1::OBSTACLE_DATA;
    case JobState::kLoading:
      return v1::OBSTACLE_LOADING;
    case JobState::kPaused:
      return v1::OBSTACLE_PAUSED;
    case JobState::kPausing:
    case JobState::kFinalizing:
      return v1::OBSTACLE_SAVING;
    case JobState::kRecovering:
      return v1::OBSTACLE_RECOVERING;
    case JobState::kQueued:
    case JobState::kRunning:
      return std::nullopt;
    default:
      return v1::OBSTACLE_ENDED;
  }
}

// Why `job` goes before the asked one.
void SetReason(const PoolSnapshot& snapshot, const WaitingJob& job,
               const WaitingJob& asked, v1::JobBefore& before) {
  const auto project = [&](const JobOwner& owner) {
    const auto found = snapshot.project_use.find(owner.project);
    return found == snapshot.project_use.end()
               ? 0
               : found->second /
                     snapshot.sharing.weights.OfProject(owner.project);
  };
  const auto user = [&](const JobOwner& owner) {
    const auto found = snapshot.user_use.find({owner.project, owner.user});
    return found == snapshot.user_use.end()
               ? 0
               : found->second / snapshot.sharing.weights.OfUser(owner.user);
  };
  const auto had_less = [&before](v1::OrderReason reason, double its,
                                  double asked_had) {
    before.set_reason(reason);
    before.set_its_hours(its / kHour);
    before.set_job_hours(asked_had / kHour);
  };
  if (job.priority != asked.priority) {
    before.set_reason(v1::ORDER_REASON_CLASS);
    before.set_job_class(PriorityName(job.priority));
  } else if (job.id == snapshot.opening) {
    before.set_reason(v1::ORDER_REASON_BEING_OPENED);
  } else if (job.ran && !asked.ran) {
    before.set_reason(v1::ORDER_REASON_RAN);
  } else if (job.ran) {  // both did
    before.set_reason(v1::ORDER_REASON_OLDER);
  } else if (project(job.owner) != project(asked.owner)) {
    had_less(v1::ORDER_REASON_PROJECT_HAD_LESS, project(job.owner),
             project(asked.owner));
  } else if (user(job.owner) != user(asked.owner)) {
    had_less(v1::ORDER_REASON_USER_HAD_LESS, user(job.owner),
             user(asked.owner));
  } else {
    before.set_reason(v1::ORDER_REASON_OLDER);
  }
}

}  // namespace

Obstacles ObstaclesOf(const PoolSnapshot& snapshot, const NameOf& name_of) {
  Obstacles all;
  const JobState state = snapshot.asked.state;
  if (state == JobState::kValidating || state == JobState::kQueued ||
      state == JobState::kRecovering) {
    AddCommon(snapshot, all);
  }
  if (state == JobState::kQueued) {
    const WaitingJob* const job = FindAsked(snapshot);
    if (job == nullptr) return all;  // it is being queued
    all.MergeFrom(WaitingFor(snapshot, *job, name_of));
  } else if (state == JobState::kRunning) {
    AddRunning(snapshot, all);
  } else {
    *all.Add() = Of(*KindIn(state));
  }
  return all;
}

std::optional<v1::QueuePlace> PlaceOf(const PoolSnapshot& snapshot,
                                      const NameOf& name_of) {
  const WaitingJob* const asked = FindAsked(snapshot);
  if (asked == nullptr) return std::nullopt;
  v1::QueuePlace place;
  place.set_place(static_cast<int32_t>(snapshot.asked_place));
  place.set_size(static_cast<int32_t>(snapshot.queue_size));
  int32_t passed_over = 0;
  for (const WaitingJob& job : snapshot.queue) {
    if (&job == asked) break;
    const bool over = !ReachedLimits(snapshot, job).empty();
    passed_over += over ? 1 : 0;
    if (place.before_size() >= static_cast<int>(kMostExplained)) continue;
    v1::JobBefore& before = *place.add_before();
    before.set_job(name_of(job.id, job.owner.project));
    before.set_passed_over(over);
    SetReason(snapshot, job, *asked, before);
  }
  place.set_passed_over(passed_over);
  if (const WaitingJob* const first = FirstBefore(snapshot)) {
    place.set_first(name_of(first->id, first->owner.project));
    Obstacles& obstacles = *place.mutable_first_obstacles();
    AddOwn(snapshot, *first, name_of, obstacles);
    if (obstacles.empty()) *obstacles.Add() = Of(v1::OBSTACLE_BEING_OPENED);
  }
  return place;
}

}  // namespace roundhouse
