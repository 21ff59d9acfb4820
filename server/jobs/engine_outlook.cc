// Engine: how things stand for a job, and who goes ahead of the first of the
// queue.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "server/explain/pool_model.h"
#include "server/jobs/engine.h"

namespace roundhouse {
namespace {

// Jobs of the queue that are looked at for who goes ahead.
constexpr size_t kMostLookedAt = 32;
constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

}  // namespace

PoolSnapshot Engine::PoolNow(size_t most, const std::string& asked) {
  const SharedUse used = UsedNow();
  const JobQueue::TurnOf turn_of = Turns();
  const JobQueue::Queued* const next = NextQueued();
  const std::string opening = opener_.opening();
  PoolSnapshot pool = outlook_.Look(
      {.queue = queue_,
       .turn_of = turn_of,
       .recent = usage_.recent(),
       .sharing = sharing_,
       .used = used,
       .opening = next != nullptr && next->id == opening ? opening : "",
       .asked = asked,
       .most = most,
       .shared_bytes = [this](const std::string& id) -> uint64_t {
         const AdmittedJobs::Job kept = admission_->admitted().Kept(id);
         return kept == nullptr ? 0 : SharedBytes(*kept);
       }});
  pool.stopping = phase_ == Phase::kDraining;
  pool.reserve_held = reserve_.held();
  pool.max_running_jobs = options_.max_running_jobs;
  return pool;
}

absl::StatusOr<PoolSnapshot> Engine::PoolFor(const std::string& id) {
  const auto pool = std::make_shared<PoolSnapshot>();
  ASSIGN_OR_RETURN(JobRecord job,
                   OnLoop([this, id, pool]() -> absl::StatusOr<JobRecord> {
                     *pool = PoolNow(kMostForecast, id);
                     return world_.store.Get(id);
                   }));
  pool->asked = std::move(job);
  return *std::move(pool);
}

const JobQueue::Queued* Engine::WhoGoesAhead(const JobQueue::Queued& first) {
  // What is being freed, or read, is not waited for long.
  const AdmittedJobs::Job kept = admission_->admitted().Kept(first.id);
  const absl::Time now = world_.loop.clock().WallTime();
  if (kept == nullptr || world_.arena.frees_later() || running_.FreesMemory() ||
      kept_.Spilling() || sampler_->holds_memory() || running_.empty()) {
    return nullptr;
  }
  // One that is being opened is looked at again before it starts.
  start_later_ = true;  // with the next tick things may stand otherwise
  if (ahead_.job.empty() && now < ahead_.next_look) return nullptr;
  ahead_.next_look = now + kBetweenLooks;
  const bool in_pieces =
      kept->host.ok() && BytesOf(*kept) <= world_.arena.free_bytes();
  const GoingAhead ahead = roundhouse::WhoGoesAhead(
      PoolNow(kMostLookedAt), first.id, first.promised,
      in_pieces ? MayGoAhead::kNoLesserClass : MayGoAhead::kAll);
  if (ahead.expected.has_value()) queue_.Promise(first.id, *ahead.expected);
  if (!ahead.job.empty() && ahead.job != ahead_.job) {
    RH_LOG(kInfo) << ahead.job << " goes ahead of " << first.id
                  << ", which waits for host memory until "
                  << absl::FormatTime(*ahead.expected, absl::UTCTimeZone());
  }
  ahead_.job = ahead.job;
  return queue_.Find(ahead.job);
}

}  // namespace roundhouse
