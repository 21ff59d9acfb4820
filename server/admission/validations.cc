#include "server/admission/validations.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files/open_limit.h"
#include "base/log.h"
#include "base/status.h"
#include "server/admission/source_files.h"
#include "server/dataset/dataset.h"
#include "server/job/storage_reason.h"
#include "server/run/evaluation_samples.h"
#include "server/workers/child_process.h"

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

Validations::Validations(const World& world, Calls calls)
    : world_(world), calls_(std::move(calls)) {}

Validations::~Validations() {
  world_.loop.CancelTimer(order_timer_);
  world_.loop.CancelTimer(shortage_timer_);
}

void Validations::Add(const std::string& id) {
  const auto job = world_.store.Get(id);
  if (!job.ok() || lanes_.Has(id)) return;
  const auto spec = ResolvedSpec::FromJson(job->resolved);
  // StartOne fails one without a spec.
  const HelperLane lane =
      spec.ok() ? LaneOf(*job, spec->spec()) : HelperLane::kShort;
  lanes_.Add(id, lane, job->owner);
}

void Validations::Forget(const std::string& id) {
  running_.erase(id);
  lanes_.Remove(id);
  if (const auto number = JobNumber(id)) order_.Drop(*number);
}

void Validations::Stop() { running_.clear(); }

void Validations::After(absl::Duration delay, const std::string& id,
                        std::function<void()> next) {
  world_.loop.After(delay, [this, id, next = std::move(next)] {
    if (running_.contains(id)) next();
  });
}

// --- what may begin ---

bool Validations::HasDescriptors() {
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

// Too few descriptors, or too much that waits for the disk (background.h).
bool Validations::MayComeAgain(const absl::Status& status) {
  return !status.ok() && (absl::IsUnavailable(status) || !HasDescriptors());
}

bool Validations::MayTakeUp() {
  if (HasDescriptors()) return true;
  if (shortage_timer_ != 0) return false;
  shortage_timer_ = world_.loop.After(kHelperRetryDelay, [this] {
    shortage_timer_ = 0;
    calls_.again();
  });
  return false;
}

void Validations::Start() {
  while (const auto id = lanes_.TakeNext()) {
    if (!StartOne(*id)) lanes_.Remove(*id);
  }
}

bool Validations::StartOne(const std::string& id) {
  const auto job = world_.store.Get(id);
  // It may have been cancelled between its creation and now.
  if (!job.ok() || job->state != JobState::kValidating) return false;
  const auto spec = ResolvedSpec::FromJson(job->resolved);
  if (!spec.ok()) {
    calls_.fail(id, absl::InternalError(spec.status().message()));
    return false;
  }
  order_.Began(*JobNumber(id), world_.loop.clock().MonotonicNs());
  PreparerOptions options = world_.helpers.Data(*job, spec->spec());
  options.progress = [this, id, train = TrainingShare(*job, spec->spec())](
                         bool validation, double share) {
    JobProgress progress;
    progress.data_read =
        validation ? train + share * (1 - train) : share * train;
    world_.store.UpdateProgress(id, progress);
  };
  Validation& begun = running_.try_emplace(id, world_.loop).first->second;
  begun.preparer =
      Preparer::Start(world_.loop, options, [this, id](absl::Status status) {
        // Not from within the child's own callback.
        After(absl::ZeroDuration(), id,
              [this, id, status] { OnPrepared(id, status); });
      });
  return true;
}

// --- eval_prompts: tokenized once, so that a bad one fails the job here ---

void Validations::OnPrepared(const std::string& id,
                             const absl::Status& status) {
  if (!status.ok()) return End(id, status);
  FindPrompts(id);
}

void Validations::FindPrompts(const std::string& id) {
  const auto job = world_.store.Get(id);
  if (!job.ok()) return End(id, job.status());
  running_.at(id).background.Run<absl::StatusOr<Prompts>>(
      [&admitted = world_.admitted, job = *job,
       data = world_.paths.Data(*job)]() -> absl::StatusOr<Prompts> {
        Prompts prompts;
        auto found = admitted.Get(job);
        if (MayPass(found.status())) return OfDisk(found.status());
        ASSIGN_OR_RETURN(prompts.job, std::move(found));
        if (prompts.job->spec.spec().eval_prompts.empty()) return prompts;
        // As the rows are that the job trains on.
        ASSIGN_OR_RETURN(prompts.chat_template,
                         UsesChatTemplate(data + "/train"));
        return prompts;
      },
      [this, id](const absl::StatusOr<Prompts>& prompts) {
        if (prompts.ok()) return StartPromptCheck(id, *prompts);
        if (!MayComeAgain(prompts.status())) return End(id, prompts.status());
        After(kHelperRetryDelay, id, [this, id] { FindPrompts(id); });
      });
}

void Validations::StartPromptCheck(const std::string& id,
                                   const Prompts& prompts) {
  const JobSpec& spec = prompts.job->spec.spec();
  if (spec.eval_prompts.empty()) return CountData(id);
  std::unique_ptr<PromptRun>& check = running_.at(id).prompt_check;
  check = std::make_unique<PromptRun>(
      world_.loop, world_.arena, world_.pool,
      EvalPromptOptions(
          {.model = prompts.job->model.config,
           .prompts = spec.eval_prompts,
           .text = world_.helpers.Text(spec, prompts.chat_template,
                                       world_.helpers.Submitted(id, spec))}),
      PromptRunCalls{
          .tokenized = [run = &check] { (*run)->End(absl::OkStatus()); },
          .piece = [](const SamplePiece&) {},
          .over =
              [this, id](const absl::Status& checked) {
                // Not from within the check's own callback.
                After(absl::ZeroDuration(), id,
                      [this, id, checked] { OnPromptsChecked(id, checked); });
              }});
  check->Start();
}

void Validations::OnPromptsChecked(const std::string& id,
                                   const absl::Status& status) {
  if (status.ok()) return CountData(id);
  if (IsOpenHang(status)) return End(id, OfDisk(status));
  if (!absl::IsUnavailable(status)) return End(id, status);
  // Its helper could not be started: there is too little of something.
  After(kHelperRetryDelay, id, [this, id] { FindPrompts(id); });
}

// --- the end ---

void Validations::CountData(const std::string& id) {
  const auto job = world_.store.Get(id);
  if (!job.ok()) return End(id, job.status());
  running_.at(id).background.Run<absl::StatusOr<std::shared_ptr<CountedData>>>(
      [&admitted = world_.admitted, &roots = world_.roots, job = *job,
       data = world_.paths.Data(
           *job)]() -> absl::StatusOr<std::shared_ptr<CountedData>> {
        const auto found = admitted.Get(job);
        if (MayPass(found.status())) return OfDisk(found.status());
        RETURN_IF_ERROR(found.status());
        return std::make_shared<CountedData>(
            CountDatasets(**found, roots, data));
      },
      [this, job = *job](
          const absl::StatusOr<std::shared_ptr<CountedData>>& counted) {
        OnCounted(job, counted.ok() ? **counted
                                    : CountedData{.counts = counted.status()});
      });
}

void Validations::OnCounted(const JobRecord& job, const CountedData& data) {
  const std::string& id = job.id;
  for (const std::string& warning : data.warnings) calls_.warn(job, warning);
  if (MayComeAgain(data.counts.status())) {
    return After(kHelperRetryDelay, id, [this, id] { CountData(id); });
  }
  if (data.counts.ok()) calls_.counted(id, *data.counts);
  End(id, data.counts.status());
}

void Validations::End(const std::string& id, const absl::Status& status) {
  const std::string ended = id;  // it may be what is erased
  running_.erase(ended);
  lanes_.Remove(ended);
  if (status.ok()) {
    order_.Ready(*JobNumber(ended));
  } else {
    order_.Drop(*JobNumber(ended));
    calls_.fail(ended, status);
  }
  calls_.again();
}

void Validations::QueueThoseReady() {
  while (const auto number =
             order_.TakeReady(world_.loop.clock().MonotonicNs())) {
    calls_.queue(NameOfJob(*number));
  }
  const auto next = order_.NextIn(world_.loop.clock().MonotonicNs());
  if (!next.has_value() || order_timer_ != 0) return;
  order_timer_ = world_.loop.After(*next, [this] {
    order_timer_ = 0;
    calls_.again();
  });
}

}  // namespace roundhouse
