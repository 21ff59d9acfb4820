// Engine: who goes first where host memory is short.
#include "base/status.h"
#include "server/jobs/engine.h"
#include "server/jobs/job_needs.h"

namespace roundhouse {
namespace {

// What rounding each of a job's allocations up to pages may add.
constexpr uint64_t kRoundingBytes = 64 << 10;

}  // namespace

absl::StatusOr<HostNeed> Engine::NeedOfSpec(const ResolvedSpec& spec,
                                            const ModelConfig& model) const {
  ASSIGN_OR_RETURN(
      const Plan plan,
      InitialPlan(spec, model, pool_.device_count(), options_.device));
  return NeedOf(spec, model, plan, spec.max_length(), pool_.device_count());
}

uint64_t Engine::TableBytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, run] : running_) bytes += run->table_bytes();
  return bytes;
}

absl::StatusOr<bool> Engine::Fits(const std::string& id) const {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  ASSIGN_OR_RETURN(const ResolvedSpec spec,
                   ResolvedSpec::FromJson(job.resolved));
  ASSIGN_OR_RETURN(const ModelDirectory model, CheckModel(spec.spec()));
  ASSIGN_OR_RETURN(const HostNeed need, NeedOfSpec(spec, model.config));
  uint64_t bytes = need.total() + TableBytes() + kRoundingBytes;
  if (need.base_bytes > 0) {
    ASSIGN_OR_RETURN(const std::string key,
                     BaseKey(model, TrainedOf(spec, model.config).dtype));
    if (bases_.Has(key)) bytes -= need.base_bytes;
  }
  return bytes <= arena_.largest_gap_bytes();
}

bool Engine::MakeRoom(const std::string& id) {
  // Whatever is wrong with a job, it fails as it starts.
  absl::StatusOr<bool> fits = Fits(id);
  if (!fits.value_or(true) && bases_.DropUnused()) fits = Fits(id);
  if (fits.value_or(true)) return true;
  if (arena_.frees_later()) return false;
  if (running_.empty() && !sampler_->holds_memory()) return true;
  if (sampler_->holds_memory()) sampler_->GiveWay([this] { StartNext(); });
  return false;
}

}  // namespace roundhouse
