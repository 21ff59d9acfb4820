#include "server/admission/admitted_jobs.h"

#include <iterator>
#include <utility>

#include "base/status.h"

namespace roundhouse {

void AdmittedJobs::Keep(const std::string& id, Job job) {
  const MutexLock lock(mutex_);
  kept_[id] = std::move(job);
  if (kept_.size() <= kMaxAdmittedKept) return;
  const auto first = kept_.begin();
  kept_.erase(first->first == id ? std::next(first) : first);
}

AdmittedJobs::Job AdmittedJobs::Kept(const std::string& id) const {
  const MutexLock lock(mutex_);
  const auto found = kept_.find(id);
  return found == kept_.end() ? nullptr : found->second;
}

absl::StatusOr<AdmittedJobs::Job> AdmittedJobs::Get(const JobRecord& job) {
  if (Job kept = Kept(job.id)) return kept;
  return TakeUp(job);
}

absl::StatusOr<AdmittedJobs::Job> AdmittedJobs::GetAsIs(const JobRecord& job) {
  Job kept = Kept(job.id);
  if (kept != nullptr && checker_.IsStillSo(*kept)) return kept;
  Forget(job.id);
  return TakeUp(job);
}

void AdmittedJobs::Forget(const std::string& id) {
  const MutexLock lock(mutex_);
  kept_.erase(id);
}

absl::StatusOr<AdmittedJobs::Job> AdmittedJobs::TakeUp(const JobRecord& job) {
  ASSIGN_OR_RETURN(AdmittedJob taken, checker_.TakeUp(job));
  Job made = std::make_shared<const AdmittedJob>(std::move(taken));
  Keep(job.id, made);
  return made;
}

}  // namespace roundhouse
