// JobRunner: what a job starts from, and its first moments.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/model/parameters.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/jobs/resumed_rows.h"
#include "server/jobs/runner.h"
#include "server/jobs/start_point.h"
#include "server/jobs/tokenizer_copy.h"

namespace roundhouse {
namespace {

// The file is not what it was when it was verified.
bool IsOfFile(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) ||
         absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
}

// Prepared data that are not those of the submit (they had to be prepared
// again, and their source had changed) would give other bits.
absl::Status CheckData(const RunnerOptions& options) {
  const std::string& now = options.train->counts().tokens_sha256;
  const std::string& then = options.dataset_sha256;
  if (then.empty() || now == then) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dataset: its tokens have SHA-256 ", now,
                   ", those that the job was submitted with had ", then,
                   ": it changed since submit, submit again"));
}

void NoteAdapter(const RunnerOptions& options, RunnerListener& listener) {
  const AdapterDirectory& adapter = *options.adapter;
  listener.OnNote(absl::StrCat("going on from the adapter ", adapter.path));
  if (SameBaseName(adapter.base_model, options.base.id) ||
      SameBaseName(adapter.base_model, options.model.path)) {
    return;
  }
  listener.OnWarning(absl::StrCat(adapter.path, ": made for the base model \"",
                                  adapter.base_model, "\"; the job's is ",
                                  options.base.id, ", which has its shapes"));
}

// The job of the checkpoint may have taken the same rows in another order.
void WarnOfRows(const RunnerOptions& options, const StartPoint& start,
                RunnerListener& listener) {
  const auto then = ResolvedSpec::FromJson(start.manifest.resolved_spec);
  const JobSpec& spec = options.spec.spec();
  if (!then.ok() || then->spec().packing != spec.packing) return;
  const auto order = [](const JobSpec& job) {
    return RowOrder{job.batch_size, static_cast<uint64_t>(job.seed)};
  };
  if (!then->spec().resume_from_checkpoint.empty()) {
    listener.OnWarning(absl::StrCat(
        start.path,
        " is of a job that went on from another checkpoint itself: which rows "
        "are trained on again, or are left out, can't be counted"));
    return;
  }
  const int64_t steps = start.manifest.step;
  const RowOrder before = order(then->spec()), now = order(spec);
  const Dataset& data = *options.train;
  const ResumedRows found = CompareRows(data.counts().rows, steps, before, now);
  if (found.again == 0 && found.left_out == 0) return;
  listener.OnWarning(
      absl::StrCat(start.path, " ",
                   ResumedRowsText(found, steps, before, now,
                                   data.LinesOf(found.first_again),
                                   data.LinesOf(found.first_left_out))));
}

}  // namespace

// The job's own checkpoints, newest first; then the one its spec names.  Before
// that the model's tokenizer files become the job's.
void JobRunner::FindStart() {
  const absl::Status data = CheckData(options_);
  if (!data.ok()) {
    return Fail(JobReason::kInvalidDataset, std::string(data.message()));
  }
  StartOptions options;
  options.files = options_.files;
  const auto steps = FindCheckpointSteps(options_.directory);
  if (!steps.ok()) return Stop(OutcomeOf(steps.status()));
  for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
    options.own.push_back(CheckpointPath(options_.directory, *step));
  }
  options.named = spec().resume_from_checkpoint;
  options.dataset_sha256 = options_.train->counts().tokens_sha256;
  options.parts = [this](const std::string& path, int64_t step) {
    return PartsOf(path, step);
  };
  auto start = std::make_shared<StartPoint>();
  auto tokenizer = std::make_shared<std::vector<std::string>>();
  InBackground(
      [this, start, options, tokenizer]() -> absl::Status {
        ASSIGN_OR_RETURN(*tokenizer,
                         KeepTokenizer(options_.model, options_.directory,
                                       options_.train->counts().turn_end_ids));
        *start = ChooseStart(options);
        return absl::OkStatus();
      },
      [this, start, tokenizer](absl::Status kept) {
        tokenizer_files_ = std::move(*tokenizer);
        if (kept.ok()) return OnStartChosen(start);
        if (outcome_.has_value()) return Finish();
        if (absl::IsResourceExhausted(kept) || MayPass(kept)) {
          return Stop(OutcomeOf(kept));  // PAUSED until it is mended
        }
        Fail(JobReason::kInvalidModel, std::string(kept.message()));
      });
}

absl::StatusOr<std::vector<FilePart>> JobRunner::PartsOf(
    const std::string& path, int64_t step) const {
  const AdapterConfig& adapter = state_->options().adapter;
  if (adapter.present()) {
    ASSIGN_OR_RETURN(
        const AdapterDirectory saved,
        OpenAdapterDirectory(*options_.files, path, options_.model.config));
    RETURN_IF_ERROR(CheckAdapterIs(adapter, saved));
  }
  return ResumeParts(*options_.files, path, step, *state_);
}

void JobRunner::OnStartChosen(std::shared_ptr<const StartPoint> start) {
  for (const std::string& note : start->notes) {
    listener_->OnCheckpointCorrupt(note);
  }
  if (MayPass(start->status)) {
    Stop(OutcomeOf(start->status));
  } else if (!start->status.ok()) {
    listener_->OnCheckpointCorrupt(std::string(start->status.message()));
    Fail(JobReason::kCheckpointCorrupt, std::string(start->status.message()));
  } else if (outcome_.has_value()) {
    Finish();
  } else if (!options_.sources.ok() && ReadsSources(*start)) {
    Fail(JobReason::kInvalidModel, std::string(options_.sources.message()));
  } else {
    Load(ChooseWeights(std::move(start)));
  }
}

// A checkpoint has all that trains; a base stays where it was.
bool JobRunner::ReadsSources(const StartPoint& start) const {
  return start.path.empty() || state_->base() != nullptr;
}

FirstWeights JobRunner::ChooseWeights(std::shared_ptr<const StartPoint> start) {
  FirstWeights weights;
  weights.start = std::move(start);
  if (!weights.start->path.empty()) {
    weights.parts = weights.start->parts;
  } else if (options_.adapter.has_value()) {
    NoteAdapter(options_, *listener_);
    const auto model_units =
        static_cast<int>(ModelUnits(options_.model.config).size());
    weights.parts = LoadParts(options_.adapter->sources, model_units, *state_);
  } else if (state_->base() != nullptr ||
             spec().model_init == ModelInit::kRandom) {
    weights.kind = wire::FileOpKind::kInit;
    weights.parts = InitParts(*state_);
  } else {
    weights.parts = LoadParts(options_.model.sources, 0, *state_);
  }
  return weights;
}

void JobRunner::Load(const FirstWeights& weights) {
  // Held: what follows may end the job at once.
  const std::shared_ptr<BaseWeights> base = state_->base();
  if (base == nullptr) {
    LoadTrained(weights);
    return;
  }
  base_ticket_ = base->Join([this, weights](BaseWeights::Turn turn) {
    if (turn == BaseWeights::Turn::kLoad) {
      LoadBase(weights);
      return;
    }
    listener_->OnNote("the base model is in host memory already");
    LoadTrained(weights);
  });
}

void JobRunner::LoadBase(const FirstWeights& next) {
  const FirstWeights frozen{wire::FileOpKind::kLoad,
                            LoadParts(options_.model.sources, 0, *state_),
                            nullptr};
  RunParts(frozen, [this, next](absl::Status status) {
    OnBaseLoaded(status);
    if (outcome_.has_value()) {
      Finish();
    } else if (!status.ok()) {
      FailLoading(status);
    } else {
      LoadTrained(next);
    }
  });
}

void JobRunner::OnBaseLoaded(const absl::Status& status) {
  BaseWeights& base = *state_->base();
  const auto key = BaseKey(options_.model, state_->options().dtype);
  // Files that changed meanwhile may have given a mixture: for this job as it
  // is, as with full fine-tuning, for no other.
  if (!key.ok() || *key != base_key_) options_.bases->Forget(base);
  base.LoadEnded(status.ok());
}

void JobRunner::LoadTrained(const FirstWeights& weights) {
  RunParts(weights, [this, start = weights.start](absl::Status status) {
    OnLoaded(*start, status);
  });
}

void JobRunner::RunParts(const FirstWeights& weights, Done done) {
  auto table = FileTable::Create(arena_, weights.kind, weights.parts);
  if (table.ok()) {
    RunFileOp(*std::move(table), std::move(done));
  } else {
    done(table.status());
  }
}

void JobRunner::FailLoading(const absl::Status& status) {
  if (MayPass(status)) return Stop(OutcomeOf(status));
  Fail(absl::IsResourceExhausted(status) ? JobReason::kHostMemory
                                         : JobReason::kInvalidModel,
       std::string(status.message()));
}

// Its weights are there.
void JobRunner::GoOnFrom(const StartPoint& start) {
  completed_step_ = begun_step_ = reduced_step_ = saved_step_ =
      start.manifest.step;
  if (!start.own) base_step_ = completed_step_;
  tokens_trained_ = static_cast<int64_t>(start.manifest.tokens_trained);
  updates_.GoOnFrom(start.manifest.loss_scaler);
  samples_.GoOnFrom(start.samples, completed_step_);
  listener_->OnNote(absl::StrCat("going on from ", start.path));
  const std::string& now = options_.train->counts().tokens_sha256;
  if (start.manifest.dataset_sha256 != now) {
    // Another job's; its own are of the job's data.
    listener_->OnWarning(
        absl::StrCat(start.path, " was trained on tokens with SHA-256 ",
                     start.manifest.dataset_sha256, ", the job's dataset has ",
                     now, ": the job goes on with step ", completed_step_ + 1,
                     " of its own order of batches"));
  } else if (!start.own) {
    WarnOfRows(options_, start, *listener_);
  }
  const nlohmann::json json = ParseTrainerState(
      start.trainer_state, start.path + "/trainer_state.json");
  for (const auto& entry : json.value("log_history", nlohmann::json::array())) {
    // Later steps were seen but not kept: they come again.
    if (!entry.is_object() || !entry.contains("step") ||
        !entry["step"].is_number_integer() || entry["step"] > completed_step_) {
      continue;
    }
    history_.push_back(entry.dump());
  }
  EvaluationsFrom(json, start);
}

// The files worker could not read what had just been verified.
void JobRunner::FindOlderStart(const StartPoint& bad, const absl::Status& why) {
  listener_->OnCheckpointCorrupt(absl::StrCat(
      "checkpoint ", bad.path, " is not used: ", std::string(why.message())));
  InBackground([path = bad.path] { return QuarantineCheckpoint(path); },
               [this, why](absl::Status moved) {
                 if (outcome_.has_value()) {
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
  if (outcome_.has_value()) {
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
  version_ = previous_version_ = next_pass_++;
  for (size_t i = 0; i < state_->units().size(); ++i) {
    const int unit = static_cast<int>(i);
    if (!state_->trainable(unit)) continue;  // a base raises its own
    wire::Raise(arena_.arena().WordAt(state_->layout(unit).version_word_offset),
                version_, arena_.arena().doorbells());
  }
  StartDispatcher();
  if (phase_ == Phase::kFinished) return;  // no device is left
  listener_->OnRunning({completed_step_, total_steps_, tokens_trained_,
                        evaluations_.evaluated_step(), samples_.lines()});
  BeginNext();
}

void JobRunner::StartDispatcher() {
  const ModelConfig& model = options_.model.config;
  const int layers = static_cast<int>(model.layer_count) + 1;
  JobShape shape;
  shape.layer_count = layers;
  shape.unit_count = layers + 1;
  shape.tied_head = model.tie_word_embeddings;
  for (int unit = 0; state_->base() != nullptr && unit <= layers; ++unit) {
    shape.trainable.push_back(unit > 0 && unit < layers);
  }
  shape.stale = state_->options().stale;
  shape.one_pass = state_->options().one_pass;
  dispatch_.Add(id(), shape, this);
  dispatching_ = true;
  phase_ = Phase::kStepping;
  FailWithoutDevices("all of them were lost before the job started");
}

}  // namespace roundhouse
