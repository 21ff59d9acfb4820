// JobRunner: what a job starts from, and its first moments.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/model/parameters.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/jobs/runner.h"
#include "server/jobs/start_point.h"
#include "server/jobs/tokenizer_copy.h"

namespace roundhouse {

// The job's own checkpoints, newest first; then the one its spec names.  Before
// that the model's tokenizer files become the job's.
void JobRunner::FindStart() {
  std::vector<std::string> own;
  const std::vector<int64_t> steps = ListCheckpointSteps(options_.directory);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    own.push_back(CheckpointPath(options_.directory, *step));
  }
  auto start = std::make_shared<StartPoint>();
  auto tokenizer = std::make_shared<std::vector<std::string>>();
  InBackground(
      [this, start, own, tokenizer,
       named = spec().resume_from_checkpoint]() -> absl::Status {
        ASSIGN_OR_RETURN(*tokenizer,
                         KeepTokenizer(options_.model, options_.directory));
        *start = ChooseStart(own, named);
        return absl::OkStatus();
      },
      [this, start, tokenizer](absl::Status kept) {
        tokenizer_files_ = std::move(*tokenizer);
        if (kept.ok()) return OnStartChosen(*start);
        if (outcome_.has_value()) return Finish();
        const bool full = absl::IsResourceExhausted(kept);
        Fail(full ? JobReason::kStorageFull : JobReason::kInvalidModel,
             std::string(kept.message()));
      });
}

void JobRunner::OnStartChosen(const StartPoint& start) {
  for (const std::string& note : start.notes) {
    listener_->OnCheckpointCorrupt(note);
  }
  if (!start.status.ok()) {
    listener_->OnCheckpointCorrupt(std::string(start.status.message()));
    Fail(JobReason::kCheckpointCorrupt, std::string(start.status.message()));
  } else if (outcome_.has_value()) {
    Finish();
  } else if (CheckStart(start)) {
    Load(start);
  }
}

// Other data would give other bits: an error in the same job, legal in a new
// one, whose order of batches goes on from the checkpoint's step.
bool JobRunner::CheckStart(const StartPoint& start) {
  const std::string& now = options_.train->counts().tokens_sha256;
  const std::string& then = start.manifest.dataset_sha256;
  if (start.path.empty() || now == then) return true;
  const std::string text =
      absl::StrCat(start.path, " was trained on tokens with SHA-256 ", then,
                   ", the job's dataset has ", now);
  if (start.own) {
    Fail(JobReason::kInvalidDataset,
         absl::StrCat(text, ": the prepared dataset changed under the job"));
    return false;
  }
  listener_->OnWarning(absl::StrCat(text, ": the job goes on with step ",
                                    start.manifest.step + 1,
                                    " of its own order of batches"));
  return true;
}

std::optional<FirstWeights> JobRunner::ResumeWeights(const StartPoint& start) {
  const AdapterConfig& adapter = state_->options().adapter;
  absl::Status status;
  if (adapter.present()) {
    const auto saved = OpenAdapterDirectory(*options_.files, start.path,
                                            options_.model.config);
    status = saved.ok() ? CheckAdapterIs(adapter, *saved) : saved.status();
  }
  auto parts = ResumeParts(start.path, start.manifest.step, *state_);
  if (status.ok()) status = parts.status();
  if (!status.ok()) {
    Fail(JobReason::kCheckpointCorrupt, std::string(status.message()));
    return std::nullopt;
  }
  completed_step_ = begun_step_ = reduced_step_ = saved_step_ =
      start.manifest.step;
  if (!start.own) base_step_ = completed_step_;
  tokens_trained_ = static_cast<int64_t>(start.manifest.tokens_trained);
  updates_.GoOnFrom(start.manifest.loss_scaler);
  RestoreHistory(start);
  listener_->OnNote(absl::StrCat("going on from ", start.path));
  return FirstWeights{wire::FileOpKind::kLoad, *std::move(parts)};
}

void JobRunner::NoteAdapter() {
  const AdapterDirectory& adapter = *options_.adapter;
  listener_->OnNote(absl::StrCat("going on from the adapter ", adapter.path));
  if (SameBaseName(adapter.base_model, options_.model.path)) return;
  listener_->OnWarning(absl::StrCat(
      adapter.path, ": made for the base model \"", adapter.base_model,
      "\"; the job's is ", options_.model.path, ", which has its shapes"));
}

std::optional<FirstWeights> JobRunner::ChooseWeights(const StartPoint& start) {
  if (!start.path.empty()) return ResumeWeights(start);
  if (options_.adapter.has_value()) {
    NoteAdapter();
    const auto model_units =
        static_cast<int>(ModelUnits(options_.model.config).size());
    return FirstWeights{
        wire::FileOpKind::kLoad,
        LoadParts(options_.adapter->sources, model_units, *state_)};
  }
  if (state_->base() != nullptr || spec().model_init == ModelInit::kRandom) {
    return FirstWeights{wire::FileOpKind::kInit, InitParts(*state_)};
  }
  return FirstWeights{wire::FileOpKind::kLoad,
                      LoadParts(options_.model.sources, 0, *state_)};
}

void JobRunner::Load(const StartPoint& start) {
  const std::optional<FirstWeights> weights = ChooseWeights(start);
  if (!weights.has_value()) return;
  // Held: what follows may end the job at once.
  const std::shared_ptr<BaseWeights> base = state_->base();
  if (base == nullptr) {
    LoadTrained(*weights);
    return;
  }
  base_ticket_ = base->Join([this, weights](BaseWeights::Turn turn) {
    if (turn == BaseWeights::Turn::kLoad) {
      LoadBase(*weights);
      return;
    }
    listener_->OnNote("the base model is in host memory already");
    LoadTrained(*weights);
  });
}

void JobRunner::LoadBase(const FirstWeights& next) {
  const FirstWeights frozen{wire::FileOpKind::kLoad,
                            LoadParts(options_.model.sources, 0, *state_)};
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
  RunParts(weights, [this](absl::Status status) { OnLoaded(status); });
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
  Fail(absl::IsResourceExhausted(status) ? JobReason::kHostMemory
                                         : JobReason::kInvalidModel,
       std::string(status.message()));
}

void JobRunner::RestoreHistory(const StartPoint& start) {
  samples_.GoOnFrom(
      ReadHistoryText(*options_.files, start.path + "/samples.jsonl"),
      completed_step_);
  const nlohmann::json json =
      ReadTrainerState(*options_.files, start.path + "/trainer_state.json");
  if (!json.is_object() || !json.contains("log_history")) {
    EvaluationsFrom(nlohmann::json::object(), start);
    return;
  }
  for (const auto& entry : json["log_history"]) {
    // Later steps were seen but not kept: they come again.
    if (!entry.is_object() || !entry.contains("step") ||
        !entry["step"].is_number_integer() || entry["step"] > completed_step_) {
      continue;
    }
    history_.push_back(entry.dump());
  }
  EvaluationsFrom(json, start);
}

void JobRunner::OnLoaded(const absl::Status& status) {
  if (outcome_.has_value()) {
    Finish();
    return;
  }
  if (!status.ok()) {
    FailLoading(status);
    return;
  }
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
