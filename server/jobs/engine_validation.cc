// Engine: jobs whose data is prepared, several at a time (helper_lanes.h), and
// queued in the order in which they were submitted (validation_order.h).
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "server/dataset/helper_limits.h"
#include "server/jobs/engine.h"
#include "server/jobs/source_files.h"
#include "server/pool/child_process.h"

namespace roundhouse {
namespace {

// What taking up a job opens at once, with room for calls.
constexpr int kJobDescriptors = 48;

// As they were submitted; a link that was swapped since fools nobody.
uint64_t FileBytes(const SourceFiles& files, const std::string& path) {
  for (const CheckedFile& file : files) {
    if (file.path == path) return file.identity.size_bytes;
  }
  return kShortDatasetBytes + 1;  // of an older job, or by a link
}

uint64_t FileBytes(const SourceFiles& files,
                   const std::vector<std::string>& paths) {
  uint64_t bytes = 0;
  for (const std::string& path : paths) bytes += FileBytes(files, path);
  return bytes;
}

// How much of all that is read for a job is the training split.
double TrainingShare(const JobRecord& job, const JobSpec& spec) {
  if (spec.validation_split > 0) return 0.5;  // both read all of the same files
  if (spec.validation_dataset.empty()) return 1;
  const auto files = SourceFilesFromJson(job.files);
  if (!files.ok()) return 0.5;
  const auto train = static_cast<double>(FileBytes(*files, spec.dataset)) + 1;
  return train / (train + static_cast<double>(
                              FileBytes(*files, spec.validation_dataset)));
}

HelperLane LaneOf(const JobRecord& job, const JobSpec& spec) {
  const auto files = SourceFilesFromJson(job.files);
  if (!files.ok()) return HelperLane::kLong;
  const uint64_t bytes = FileBytes(*files, spec.dataset) +
                         FileBytes(*files, spec.validation_dataset);
  return bytes <= kShortDatasetBytes ? HelperLane::kShort : HelperLane::kLong;
}

}  // namespace

void Engine::AddToValidate(const std::string& id) {
  const auto job = store_.Get(id);
  if (!job.ok() || validation_lanes_.Has(id)) return;
  const auto spec = ResolvedSpec::FromJson(job->resolved);
  // StartValidation fails one without a spec.
  const HelperLane lane =
      spec.ok() ? LaneOf(*job, spec->spec()) : HelperLane::kShort;
  validation_lanes_.Add(id, lane, job->owner);
}

bool Engine::HasDescriptors() {
  const absl::Status left = CheckDescriptorsLeft(kJobDescriptors);
  if (left.ok()) {
    told_of_shortage_ = false;
    return true;
  }
  if (!std::exchange(told_of_shortage_, true)) {
    RH_LOG(kWarning) << "no job is taken up: " << left.message();
  }
  return false;
}

bool Engine::MayTakeUp() {
  if (HasDescriptors()) return true;
  if (shortage_timer_ != 0) return false;
  shortage_timer_ = loop_.After(kHelperRetryDelay, [this] {
    shortage_timer_ = 0;
    StartNext();
  });
  return false;
}

void Engine::StartValidations() {
  while (const auto id = validation_lanes_.TakeNext()) {
    if (!StartValidation(*id)) validation_lanes_.Remove(*id);
  }
}

bool Engine::StartValidation(const std::string& id) {
  const auto job = store_.Get(id);
  // It may have been cancelled between its creation and now.
  if (!job.ok() || job->state != JobState::kValidating) return false;
  const auto spec = ResolvedSpec::FromJson(job->resolved);
  if (!spec.ok()) {
    FailJob(id, JobReason::kInternal, std::string(spec.status().message()));
    return false;
  }
  validation_order_.Began(*JobNumber(id), MonotonicNs());
  PreparerOptions options = OptionsOfData(*job, spec->spec());
  options.progress = [this, id, train = TrainingShare(*job, spec->spec())](
                         bool validation, double share) {
    JobProgress progress;
    progress.data_read =
        validation ? train + share * (1 - train) : share * train;
    store_.UpdateProgress(id, progress);
  };
  validations_[id].preparer =
      Preparer::Start(loop_, options, [this, id](absl::Status status) {
        // Not from within the child's own callback.
        loop_.After(absl::ZeroDuration(), [this, id, status] {
          if (validations_.contains(id)) OnPrepared(id, status);
        });
      });
  return true;
}

void Engine::OnValidated(const std::string& id, const absl::Status& status) {
  const auto job = store_.Get(id);
  absl::StatusOr<DatasetCounts> counts = !status.ok() ? status
                                         : !job.ok()  ? job.status()
                                                      : TakeDatasets(*job);
  if (status.ok() && !counts.ok() && !HasDescriptors()) {
    loop_.After(kHelperRetryDelay, [this, id] {
      if (validations_.contains(id)) OnValidated(id, absl::OkStatus());
    });
    return;
  }
  validations_.erase(id);
  validation_lanes_.Remove(id);
  if (counts.ok()) {
    JobDetails details;
    details.dataset = *counts;
    transitions_.Want(id, "what its datasets hold", [this, id, details] {
      return store_.SetDetails(id, details);
    });
    validation_order_.Ready(*JobNumber(id));
  } else {
    validation_order_.Drop(*JobNumber(id));
    EndUntaken(id, counts.status());
  }
  StartNext();
}

void Engine::QueueThoseReady() {
  while (const auto number = validation_order_.TakeReady(MonotonicNs())) {
    const std::string id = NameOfJob(*number);
    SetState(id, JobState::kQueued, JobReason::kNone, "",
             [this, id] { Enqueue(id); });
  }
  const auto next = validation_order_.NextIn(MonotonicNs());
  if (!next.has_value() || order_timer_ != 0) return;
  order_timer_ = loop_.After(*next, [this] {
    order_timer_ = 0;
    StartNext();
  });
}

void Engine::ForgetValidation(const std::string& id) {
  validations_.erase(id);
  validation_lanes_.Remove(id);
  if (const auto number = JobNumber(id)) validation_order_.Drop(*number);
}

}  // namespace roundhouse
