#include "server/run/start_weights.h"

#include "absl/strings/str_cat.h"
#include "base/model/parameters.h"
#include "base/status.h"
#include "server/dataset/dataset.h"
#include "server/run/resumed_rows.h"
#include "server/weights/adapter_files.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

void NoteAdapter(const RunnerOptions& options, JobEvents& events) {
  const AdapterDirectory& adapter = *options.adapter;
  events.OnNote(absl::StrCat("going on from the adapter ", adapter.path));
  if (SameBaseName(adapter.base_model, options.base.id) ||
      SameBaseName(adapter.base_model, options.model.path)) {
    return;
  }
  events.OnWarning(absl::StrCat(adapter.path, ": made for the base model \"",
                                adapter.base_model, "\"; the job's is ",
                                options.base.id, ", which has its shapes"));
}

}  // namespace

bool IsOfFile(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) ||
         absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
}

absl::Status CheckData(const RunnerOptions& options) {
  const std::string& now = options.train->counts().tokens_sha256;
  const std::string& then = options.dataset_sha256;
  if (then.empty() || now == then) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dataset: its tokens have SHA-256 ", now,
                   ", those that the job was submitted with had ", then,
                   ": it changed since submit, submit again"));
}

bool ReadsSources(const StartPoint& start, const TrainingState& state) {
  return start.path.empty() || state.base() != nullptr;
}

absl::StatusOr<std::vector<FilePart>> CheckpointParts(
    const RunnerOptions& options, const TrainingState& state,
    const std::string& path, int64_t step) {
  const AdapterConfig& adapter = state.options().adapter;
  if (adapter.present()) {
    ASSIGN_OR_RETURN(
        const AdapterDirectory saved,
        OpenAdapterDirectory(*options.files, path, options.model.config));
    RETURN_IF_ERROR(CheckAdapterIs(adapter, saved));
  }
  return ResumeParts(*options.files, path, step, state);
}

WeightsLoader::Weights FirstWeights(const RunnerOptions& options,
                                    const TrainingState& state,
                                    const StartPoint& start,
                                    JobEvents& events) {
  if (!start.path.empty()) return {wire::FileOpKind::kLoad, start.parts};
  if (options.adapter.has_value()) {
    NoteAdapter(options, events);
    const auto model_units =
        static_cast<int>(ModelUnits(options.model.config).size());
    return {wire::FileOpKind::kLoad,
            LoadParts(options.adapter->sources, model_units, state)};
  }
  if (state.base() != nullptr ||
      options.spec.spec().model_init == ModelInit::kRandom) {
    return {wire::FileOpKind::kInit, InitParts(state)};
  }
  return {wire::FileOpKind::kLoad, LoadParts(options.model.sources, 0, state)};
}

std::string RowsWarning(const RunnerOptions& options, const StartPoint& start) {
  if (start.path.empty() || start.own ||
      start.manifest.dataset_sha256 != options.train->counts().tokens_sha256) {
    return "";
  }
  const auto then = ResolvedSpec::FromJson(start.manifest.resolved_spec);
  const JobSpec& spec = options.spec.spec();
  if (!then.ok() || then->spec().packing != spec.packing) return "";
  const auto order = [](const JobSpec& job) {
    return RowOrder{job.batch_size, static_cast<uint64_t>(job.seed)};
  };
  if (!then->spec().resume_from_checkpoint.empty()) {
    return absl::StrCat(
        start.path,
        " is of a job that went on from another checkpoint itself: which rows "
        "are trained on again, or are left out, can't be counted");
  }
  const int64_t steps = start.manifest.step;
  const RowOrder before = order(then->spec()), now = order(spec);
  const Dataset& data = *options.train;
  const ResumedRows found = CompareRows(data.counts().rows, steps, before, now);
  if (found.again == 0 && found.left_out == 0) return "";
  return absl::StrCat(start.path, " ",
                      ResumedRowsText(found, steps, before, now,
                                      data.LinesOf(found.first_again),
                                      data.LinesOf(found.first_left_out)));
}

void TellOfStart(const RunnerOptions& options, const StartPoint& start,
                 JobEvents& events) {
  events.OnNote(absl::StrCat("going on from ", start.path));
  const std::string& now = options.train->counts().tokens_sha256;
  if (start.manifest.dataset_sha256 != now) {
    // Another job's; its own are of the job's data.
    events.OnWarning(
        absl::StrCat(start.path, " was trained on tokens with SHA-256 ",
                     start.manifest.dataset_sha256, ", the job's dataset has ",
                     now, ": the job goes on with step ",
                     start.manifest.step + 1, " of its own order of batches"));
  } else if (!start.rows_warning.empty()) {
    events.OnWarning(start.rows_warning);
  }
}

}  // namespace roundhouse
