#include "server/explain/measured_work.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/status.h"
#include "server/planning/job_needs.h"
#include "server/planning/step_times.h"
#include "server/spec/spec.h"

namespace roundhouse {
namespace {

// The newest jobs that have succeeded.
constexpr int kJobsLookedAt = 200;

// Its device time is that of all its steps: it ran once, from the first one.
std::optional<JobLength> LengthIn(const JobRecord& job, const JobSpec& spec) {
  const JobProgress& progress = job.progress;
  if (job.attempts != 1 || !spec.resume_from_checkpoint.empty() ||
      progress.step < kFewestMeasuredSteps) {
    return std::nullopt;
  }
  double seconds = 0;
  for (const DeviceUse& use : progress.device_use) {
    seconds += use.compute_seconds;
  }
  if (!(seconds > 0)) return std::nullopt;
  return JobLength{
      .step_device_seconds = seconds / static_cast<double>(progress.step),
      .measured_in = {job.id, job.project}};
}

}  // namespace

uint64_t WorkOf(const std::string& resolved) {
  const std::string work = StepWorkOf(resolved);
  return work.empty() ? 0 : std::hash<std::string>()(work);
}

int64_t StepsOf(const JobRecord& job) {
  if (job.progress.total_steps > 0) return job.progress.total_steps;
  const auto resolved = ResolvedSpec::FromJson(job.resolved);
  if (!resolved.ok()) return 0;
  const JobSpec& spec = resolved->spec();
  if (spec.max_steps > 0) return spec.max_steps;
  // Packed rows are counted when they are packed.
  if (spec.packing || !job.dataset.has_value()) return 0;
  return TotalSteps(spec, job.dataset->train_sequences);
}

void MeasuredWork::Note(uint64_t work, const JobLength& length) {
  if (work == 0) return;
  measured_[work] = {length, ++noted_};
  if (measured_.size() <= kMaxMeasuredWork) return;
  measured_.erase(std::min_element(measured_.begin(), measured_.end(),
                                   [](const auto& a, const auto& b) {
                                     return a.second.noted < b.second.noted;
                                   }));
}

const JobLength* MeasuredWork::Find(uint64_t work) const {
  const auto found = measured_.find(work);
  return found == measured_.end() ? nullptr : &found->second.length;
}

absl::StatusOr<WorkLengths> ReadMeasuredWork(const JobStore& store) {
  ASSIGN_OR_RETURN(const JobPage page, store.List({JobState::kSucceeded},
                                                  std::nullopt, kJobsLookedAt));
  WorkLengths lengths;
  for (const JobRecord& listed : page.jobs) {
    // A list has no specs.
    const auto job = store.Get(listed.id);
    if (!job.ok()) continue;  // it was deleted
    const auto resolved = ResolvedSpec::FromJson(job->resolved);
    if (!resolved.ok()) continue;
    const auto length = LengthIn(*job, resolved->spec());
    if (length.has_value()) {
      lengths.emplace_back(WorkOf(job->resolved), *length);
    }
  }
  std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

}  // namespace roundhouse
