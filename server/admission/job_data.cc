#include "server/admission/job_data.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/job/storage_reason.h"
#include "server/planning/job_needs.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

// The step of the checkpoint that the job goes on from.
absl::StatusOr<int64_t> StartStep(const FileOpener& files,
                                  const AdmittedJob& job) {
  if (job.resumed.has_value()) return job.start_step();
  // It was admitted by an earlier daemon.
  const auto manifest =
      ReadCheckpoint(files, job.spec.spec().resume_from_checkpoint);
  if (MayPass(manifest.status())) return OfDisk(manifest.status());
  if (absl::IsDataLoss(manifest.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("resume_from_checkpoint: ", manifest.status().message()));
  }
  RETURN_IF_ERROR(manifest.status());
  return manifest->step;
}

// A job by epochs knows its steps only now.
absl::Status CheckStepsLeft(const FileOpener& files, const AdmittedJob& job,
                            int64_t rows) {
  const JobSpec& spec = job.spec.spec();
  if (spec.resume_from_checkpoint.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t start, StartStep(files, job));
  const int64_t steps = TotalSteps(spec, rows);
  if (start < steps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("resume_from_checkpoint: ", spec.resume_from_checkpoint,
                   ": step ", start, " is not below the ", steps,
                   " steps of the job (", spec.num_train_epochs, " epochs of ",
                   rows, " ", spec.packing ? "packed rows" : "sequences", ")"));
}

// What messages call a dataset.
std::string NameOf(const std::vector<std::string>& files) {
  return files.size() == 1
             ? files[0]
             : absl::StrCat(files[0], " and ", files.size() - 1, " more");
}

void WarnOf(const std::vector<std::string>& files, const Dataset& data,
            std::vector<std::string>& warnings) {
  for (const std::string& warning : data.counts().warnings) {
    warnings.push_back(absl::StrCat(NameOf(files), ": ", warning));
  }
}

void AddTrain(const Dataset::Counts& train, DatasetCounts& counts) {
  counts.train_sequences = train.sequences;
  counts.train_tokens = train.tokens;
  counts.train_truncated = train.truncated;
  counts.train_dropped = train.dropped;
  counts.sha256 = train.tokens_sha256;
}

void AddValidation(const Dataset::Counts& validation, DatasetCounts& counts) {
  counts.validation_sequences = validation.sequences;
  counts.validation_tokens = validation.tokens;
  counts.validation_truncated = validation.truncated;
  counts.validation_dropped = validation.dropped;
  counts.bigram_validation_loss = validation.bigram_loss;
}

absl::StatusOr<DatasetCounts> Count(const AdmittedJob& job,
                                    const FileOpener& files,
                                    const std::string& folder,
                                    std::vector<std::string>& warnings) {
  const JobSpec& spec = job.spec.spec();
  const int64_t vocab_size = job.model.config.vocab_size;
  DatasetCounts counts;
  ASSIGN_OR_RETURN(const auto train,
                   Dataset::Open(folder + "/train", vocab_size));
  AddTrain(train->counts(), counts);
  WarnOf(spec.dataset, *train, warnings);
  RETURN_IF_ERROR(CheckStepsLeft(files, job, train->counts().rows));
  if (!HasValidation(spec)) return counts;
  ASSIGN_OR_RETURN(const auto validation,
                   Dataset::Open(folder + "/validation", vocab_size));
  AddValidation(validation->counts(), counts);
  const auto& own = spec.validation_dataset;
  WarnOf(own.empty() ? spec.dataset : own, *validation, warnings);
  return counts;
}

}  // namespace

absl::Status OfDisk(const absl::Status& status) {
  return absl::DataLossError(status.message());
}

absl::StatusOr<JobDatasets> OpenDatasets(const AdmittedJob& job,
                                         const std::string& folder) {
  const int64_t vocab_size = job.model.config.vocab_size;
  JobDatasets data;
  ASSIGN_OR_RETURN(data.train, Dataset::Open(folder + "/train", vocab_size));
  if (!HasValidation(job.spec.spec())) return data;
  ASSIGN_OR_RETURN(data.validation,
                   Dataset::Open(folder + "/validation", vocab_size));
  return data;
}

CountedData CountDatasets(const AdmittedJob& job, const FileOpener& files,
                          const std::string& folder) {
  CountedData data{.counts = absl::UnknownError("not counted")};
  data.counts = Count(job, files, folder, data.warnings);
  return data;
}

}  // namespace roundhouse
