// Engine: who goes first where host memory is short.
#include "base/status.h"
#include "server/jobs/engine.h"
#include "server/jobs/job_needs.h"

namespace roundhouse {
namespace {

// What rounding each of a job's allocations up to pages may add.
constexpr uint64_t kRoundingBytes = 64 << 10;

}  // namespace

uint64_t Engine::TableBytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, run] : running_) bytes += run->table_bytes();
  return bytes;
}

absl::StatusOr<bool> Engine::Fits(const std::string& id) const {
  ASSIGN_OR_RETURN(const JobRecord job, store_.Get(id));
  ASSIGN_OR_RETURN(const AdmittedJobs::Job admitted, admitted_->Get(job));
  RETURN_IF_ERROR(admitted->host.status());
  const HostNeed& need = *admitted->host;
  uint64_t bytes = need.total() + TableBytes() + kRoundingBytes;
  if (need.base_bytes > 0 && bases_.Has(admitted->base_key)) {
    bytes -= need.base_bytes;
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
