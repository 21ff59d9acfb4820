// JobRunner: what goes through the files worker.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/jobs/disk_reserve.h"
#include "server/jobs/runner.h"
#include "server/jobs/tokenizer_copy.h"
#include "server/weights/output_owner.h"

namespace roundhouse {
namespace {

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

}  // namespace

void JobRunner::RunFileOp(std::unique_ptr<FileTable> table, Done done) {
  wire::FileOp op = table->op();
  op.job = options_.job;
  op.seed = static_cast<uint64_t>(spec().seed);
  const FilesLine::Ticket ticket = options_.files_line->Run(
      op, [this](const absl::Status& status) { OnFileOp(status); });
  file_op_ = PendingFileOp{std::move(table), ticket, std::move(done)};
}

void JobRunner::OnFileOp(const absl::Status& status) {
  ROUNDHOUSE_CHECK(file_op_.has_value());
  const FilesLine::Ticket ticket = file_op_->ticket;
  const auto done = file_op_->done;
  // What reads the tables of one that was done is in `done`.
  if (!status.ok()) file_op_.reset();
  done(status);
  if (file_op_.has_value() && file_op_->ticket == ticket) file_op_.reset();
  AfterQuiet();
  if (dispatching_) CarryOut();
}

absl::StatusOr<DirectoryPlan> JobRunner::PlanDirectory(const std::string& path,
                                                       bool checkpoint) const {
  DirectoryPlan plan;
  plan.final_path = path;
  if (checkpoint) {
    plan.sites = {kCheckpointFolder, kCheckpointText, kCheckpointRename,
                  kCheckpointRemove};
  }
  const std::string temporary = TemporaryName(path);
  const int64_t update = best_in_arena_.value_or(completed_step_);
  ASSIGN_OR_RETURN(WeightFiles weights,
                   TrainedFiles(*state_, update, temporary));
  std::vector<WeightFiles> sets;
  sets.push_back(std::move(weights));
  if (checkpoint) {
    ASSIGN_OR_RETURN(WeightFiles optimizer,
                     OptimizerFiles(*state_, update, temporary));
    sets.push_back(std::move(optimizer));
  }
  // The job store's reserve, which it may have given up.
  plan.left_bytes = kDiskReserveBytes;
  for (WeightFiles& set : sets) {
    for (FilePart& part : set.parts) {
      plan.total_bytes += part.file_bytes;
      plan.parts.push_back(std::move(part));
    }
    if (!set.index_name.empty()) plan.texts[set.index_name] = set.index_json;
  }
  const AdapterConfig& adapter = state_->options().adapter;
  if (adapter.present()) {
    plan.texts[kAdapterConfigName] =
        AdapterConfigJson(adapter, options_.base.id, options_.base.revision);
  } else {
    ASSIGN_OR_RETURN(plan.texts["config.json"],
                     ExportedConfigJson(options_.model.config_json,
                                        state_->options().dtype));
  }
  plan.texts["trainer_state.json"] = TrainerStateJson();
  if (!checkpoint) {
    plan.texts["metrics.jsonl"] = Lines(history_);
    plan.owner_uid = options_.uid;
    plan.texts[kOutputOwnerName] =
        OutputOwnerJson(absl::StrCat("job-", options_.job), options_.uid);
  }
  if (!samples_.lines().empty()) {
    plan.texts["samples.jsonl"] = Lines(samples_.lines());
  }
  for (const std::string& name : tokenizer_files_) {
    plan.copied_files.push_back(
        absl::StrCat(TokenizerCopy(options_.directory), "/", name));
  }
  return plan;
}

void JobRunner::WriteDirectory(const DirectoryWrite& write) {
  InBackground([plan = write.plan] { return BeginDirectory(*plan); },
               [this, write](absl::Status begun) {
                 if (begun.ok()) {
                   WriteParts(write);
                 } else {
                   AbandonParts(write, begun);
                 }
               });
}

void JobRunner::WriteParts(const DirectoryWrite& write) {
  auto table =
      FileTable::Create(arena_, wire::FileOpKind::kSave, write.plan->parts);
  if (!table.ok()) {
    // Not of the disk, which RESOURCE_EXHAUSTED stands for here.
    AbandonParts(write, absl::UnavailableError(table.status().message()));
    return;
  }
  RunFileOp(*std::move(table), [this, write](absl::Status written) {
    if (!written.ok()) {
      AbandonParts(write, written);
      return;
    }
    DirectoryPlan& plan = *write.plan;
    if (write.checkpoint) plan.manifest = ManifestOf(plan, *file_op_->table);
    FinishParts(write);
  });
}

void JobRunner::FinishParts(const DirectoryWrite& write) {
  InBackground(
      [plan = write.plan] {
        const absl::Status status = FinishDirectory(*plan);
        if (!status.ok()) AbandonDirectory(*plan);
        return status;
      },
      [this, write](absl::Status finished) { OnWritten(write, finished); });
}

void JobRunner::AbandonParts(const DirectoryWrite& write,
                             const absl::Status& why) {
  InBackground(
      [plan = write.plan] {
        AbandonDirectory(*plan);
        return absl::OkStatus();
      },
      [this, write, why](const absl::Status&) { OnWritten(write, why); });
}

void JobRunner::Save(Done done) {
  const int64_t step = completed_step_;
  const std::string path = CheckpointPath(options_.directory, step);
  saving_ = true;
  saved_ = {tokens_trained_, updates_.State(), MonotonicNs()};
  auto finish = [this, step, done](absl::Status status) {
    saving_ = false;
    if (status.ok()) {
      OnSaved(step);
    } else if (!absl::IsCancelled(status)) {  // it was held, and given up
      listener_->OnCheckpointFailed(step, status);
    }
    done(status);
  };
  absl::StatusOr<DirectoryPlan> plan = PlanDirectory(path, true);
  if (!plan.ok()) {
    finish(plan.status());
    return;
  }
  WriteDirectory({std::make_shared<DirectoryPlan>(*std::move(plan)), true,
                  std::move(finish)});
}

// A full disk holds the job (runner_hold.cc); a checkpoint that failed for
// another reason costs what a crash would lose, not the job.
void JobRunner::SaveAndGoOn() {
  Save([this, step = completed_step_](absl::Status status) {
    if (!status.ok() && spec().load_best_model_at_end) {
      evaluations_.DropBestOf(step);
    }
    HoldForNextSave();
    if (!outcome_.has_value() && Idle()) BeginNext();
    CarryOut();
  });
}

void JobRunner::OnSaved(int64_t step) {
  saved_step_ = step;
  CheckpointReport report;
  report.step = step;
  report.path = CheckpointPath(options_.directory, step);
  std::error_code error;
  for (auto file = std::filesystem::directory_iterator(report.path, error);
       !error && file != std::filesystem::directory_iterator();
       file.increment(error)) {
    std::error_code gone;
    const uintmax_t bytes = file->file_size(gone);
    if (!gone) report.bytes += bytes;
  }
  report.seconds = static_cast<double>(MonotonicNs() - saved_.begun_ns) * 1e-9;
  listener_->OnCheckpoint(report);
  DropOldCheckpoints();
}

void JobRunner::Export() { ExportTo(options_.output_path); }

// What is there already and is not this job's stays; the result then has the
// job's uid in its name.
void JobRunner::ExportTo(const std::string& path) {
  absl::StatusOr<DirectoryPlan> plan = PlanDirectory(path, false);
  if (!plan.ok()) {
    Fail(JobReason::kInternal, std::string(plan.status().message()));
    return;
  }
  WriteDirectory(
      {std::make_shared<DirectoryPlan>(*std::move(plan)), false,
       [this, path](absl::Status status) {
         if (outcome_.has_value()) return;  // AfterQuiet finishes
         const bool elsewhere = path != options_.output_path;
         if (absl::IsAlreadyExists(status) && !elsewhere) {
           listener_->OnNote(absl::StrCat(status.message(),
                                          " and is not this job's: it stays"));
           ExportTo(absl::StrCat(path, "-", options_.uid));
           return;
         }
         if (!status.ok()) {  // what else could not be written is held
           Stop(OutcomeOf(status));
           return;
         }
         outcome_ = JobOutcome{JobState::kSucceeded, JobReason::kNone,
                               FinalMessage(), path};
         Finish();
       }});
}

CheckpointManifest JobRunner::ManifestOf(const DirectoryPlan& plan,
                                         const FileTable& table) const {
  CheckpointManifest manifest;
  manifest.step = completed_step_;
  manifest.seed = static_cast<uint64_t>(spec().seed);
  manifest.dtype = DTypeName(state_->options().dtype);
  manifest.dataset_sha256 = options_.train->counts().tokens_sha256;
  manifest.tokens_trained = static_cast<double>(saved_.tokens);
  manifest.loss_scaler = saved_.loss_scaler;
  manifest.resolved_spec = options_.spec.ToJson();
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const FilePart& part = plan.parts[i];
    manifest.shards.push_back(
        {std::filesystem::path(part.path).filename().string(), part.file_bytes,
         table.Sha256(static_cast<int>(i))});
  }
  return manifest;
}

std::string JobRunner::TrainerStateJson() const {
  nlohmann::json entries = nlohmann::json::array();
  for (const std::string& entry : history_) {
    entries.push_back(nlohmann::json::parse(entry));
  }
  const double epoch = static_cast<double>(completed_step_) /
                       static_cast<double>(order_.steps_per_epoch());
  nlohmann::json state = {{"global_step", completed_step_},
                          {"max_steps", total_steps_},
                          {"epoch", epoch},
                          {"num_train_epochs", spec().num_train_epochs},
                          {"train_batch_size", spec().batch_size},
                          {"logging_steps", spec().logging_steps},
                          {"eval_steps", spec().eval_steps},
                          {"save_steps", spec().save_steps},
                          {"best_global_step", nullptr},
                          {"best_metric", nullptr},
                          {"best_model_checkpoint", nullptr},
                          {"log_history", entries}};
  if (const auto& best = evaluations_.best()) {
    state["best_global_step"] = best->step;
    state["best_metric"] = best->loss;
    if (spec().load_best_model_at_end) {
      state["best_model_checkpoint"] =
          CheckpointPath(options_.directory, best->step);
    }
  }
  return state.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

// The newer one is on disk: order on the background thread keeps a crash from
// finding neither.
void JobRunner::DropOldCheckpoints() {
  const int64_t limit = spec().save_total_limit;
  if (limit <= 0) return;
  std::optional<int64_t> best;
  if (spec().load_best_model_at_end && evaluations_.best().has_value()) {
    best = evaluations_.best()->step;
  }
  InBackground(
      [directory = options_.directory, limit, best, newest = saved_step_] {
        return RemoveOldCheckpoints(directory, limit, best, newest);
      },
      [this](absl::Status status) {
        const std::string text(status.message());
        if (absl::IsDataLoss(status)) {
          listener_->OnCheckpointCorrupt(text);
        } else if (!status.ok()) {
          listener_->OnNote(text);
        }
      });
}

}  // namespace roundhouse
