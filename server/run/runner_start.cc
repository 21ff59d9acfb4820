// JobRunner: what a job starts from, and its first moments.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/run/runner.h"
#include "server/run/start_weights.h"
#include "server/weights/checkpoint.h"
#include "server/weights/tokenizer_copy.h"

namespace roundhouse {

// The job's own checkpoints, newest first; then the one its spec names.  Before
// that the model's tokenizer files become the job's.
void JobRunner::FindStart() {
  const absl::Status data = CheckData(options_);
  if (!data.ok()) {
    return Fail(JobReason::kInvalidDataset, std::string(data.message()));
  }
  StartOptions options;
  options.files = options_.files;
  options.named = spec().resume_from_checkpoint;
  options.dataset_sha256 = options_.train->counts().tokens_sha256;
  options.parts = [this](const std::string& path, int64_t step) {
    return CheckpointParts(options_, memory_.state(), path, step);
  };
  // Shared: written off the loop, read on it.
  auto start = std::make_shared<StartPoint>();
  auto tokenizer = std::make_shared<std::vector<std::string>>();
  background_.Run(
      [this, start, options, tokenizer]() mutable -> absl::Status {
        ASSIGN_OR_RETURN(const std::vector<int64_t> steps,
                         FindCheckpointSteps(options_.directory));
        for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
          options.own.push_back(CheckpointPath(options_.directory, *step));
        }
        ASSIGN_OR_RETURN(*tokenizer,
                         KeepTokenizer(options_.model, options_.directory,
                                       options_.train->counts().turn_end_ids));
        *start = ChooseStart(options);
        start->rows_warning = RowsWarning(options_, *start);
        return absl::OkStatus();
      },
      [this, start, tokenizer](const absl::Status& kept) {
        saver_.SetTokenizerFiles(std::move(*tokenizer));
        if (kept.ok()) return OnStartChosen(start);
        if (phase_.ending()) return Finish();
        if (absl::IsResourceExhausted(kept) || MayPass(kept)) {
          return Stop(OutcomeOf(kept));  // PAUSED until it is mended
        }
        Fail(JobReason::kInvalidModel, std::string(kept.message()));
      });
}

void JobRunner::OnStartChosen(std::shared_ptr<const StartPoint> start) {
  for (const std::string& note : start->notes) {
    events_.OnCheckpointCorrupt(note);
  }
  if (start->corrupt.empty()) return BeginFrom(std::move(start));
  // Told before: nobody finds them again.
  auto failures = std::make_shared<std::vector<std::string>>();
  background_.Run(
      [start, failures] {
        *failures = MoveAside(start->corrupt);
        return absl::OkStatus();
      },
      [this, start, failures](const absl::Status&) {
        for (const std::string& failure : *failures) {
          events_.OnCheckpointCorrupt(failure);
        }
        BeginFrom(start);
      });
}

void JobRunner::BeginFrom(std::shared_ptr<const StartPoint> start) {
  if (MayPass(start->status)) {
    Stop(OutcomeOf(start->status));
  } else if (!start->status.ok()) {
    events_.OnCheckpointCorrupt(std::string(start->status.message()));
    Fail(JobReason::kCheckpointCorrupt, std::string(start->status.message()));
  } else if (phase_.ending()) {
    Finish();
  } else if (!options_.sources.ok() && ReadsSources(*start, memory_.state())) {
    Fail(JobReason::kInvalidModel, std::string(options_.sources.message()));
  } else {
    Load(std::move(start));
  }
}

void JobRunner::Load(std::shared_ptr<const StartPoint> start) {
  WeightsLoader::Weights weights =
      FirstWeights(options_, memory_.state(), *start, events_);
  loader_.Load(
      std::move(weights),
      {.stopped = [this] { return phase_.ending(); },
       .base_is_there =
           [this] {
             events_.OnNote("the base model is in host memory already");
           },
       .base_failed =
           [this](const absl::Status& status) { OnBaseFailed(status); },
       .over = [this, start](
                   const absl::Status& status) { OnLoaded(*start, status); }});
}

void JobRunner::OnBaseFailed(const absl::Status& status) {
  if (phase_.ending()) return Finish();
  FailLoading(status);
}

void JobRunner::FailLoading(const absl::Status& status) {
  if (MayPass(status)) return Stop(OutcomeOf(status));
  Fail(absl::IsResourceExhausted(status) ? JobReason::kHostMemory
                                         : JobReason::kInvalidModel,
       std::string(status.message()));
}

// Its weights are there.
void JobRunner::GoOnFrom(const StartPoint& start) {
  marks_.GoOnFrom(start.manifest.step, start.own);
  saver_.GoOnFrom(start.manifest.step);
  updates_.GoOnFrom(start.manifest.loss_scaler);
  TellOfStart(options_, start, events_);
  const nlohmann::json state = ParseTrainerState(
      start.trainer_state, start.path + "/trainer_state.json");
  history_.GoOnFrom(state, marks_.completed,
                    static_cast<int64_t>(start.manifest.tokens_trained));
  evaluations_.GoOnFrom(state, start.own, start.samples);
}

// The files worker could not read what had just been verified.
void JobRunner::FindOlderStart(const StartPoint& bad, const absl::Status& why) {
  events_.OnCheckpointCorrupt(absl::StrCat(
      "checkpoint ", bad.path, " is not used: ", std::string(why.message())));
  background_.Run([path = bad.path] { return QuarantineCheckpoint(path); },
                  [this, why](const absl::Status& moved) {
                    if (phase_.ending()) {
                      Finish();
                    } else if (moved.ok()) {
                      FindStart();
                    } else {  // it would be found again
                      Stop(OutcomeOf(absl::Status(
                          moved.code(),
                          absl::StrCat(why.message(), "; ", moved.message()))));
                    }
                  });
}

void JobRunner::OnLoaded(const StartPoint& start, const absl::Status& status) {
  if (phase_.ending()) {
    Finish();
    return;
  }
  if (!status.ok() && start.own && IsOfFile(status)) {
    FindOlderStart(start, status);
    return;
  }
  if (!status.ok()) {
    FailLoading(status);
    return;
  }
  if (!start.path.empty()) GoOnFrom(start);
  memory_.RaiseVersions(maker_.FirstVersion());
  const RunningReport report = {marks_.completed,
                                marks_.total,
                                history_.tokens_trained(),
                                evaluations_.evaluated_step(),
                                evaluations_.sample_lines(),
                                !spec().eval_prompts.empty()};
  background_.Run(
      [this, report] {
        events_.KeepLines(report);
        return absl::OkStatus();
      },
      [this, report](const absl::Status&) { OnFilesKept(report); });
}

void JobRunner::OnFilesKept(const RunningReport& report) {
  if (phase_.ending()) return Finish();
  StartSteps();
  if (phase_.finished()) return;  // no device is left
  events_.OnRunning(report);
  BeginNext();
}

void JobRunner::StartSteps() {
  book_.Open(*adviser_);
  phase_.StartSteps();
  FailWithoutDevices("all of them were lost before the job started");
}

}  // namespace roundhouse
