#include "server/run/job_saver.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/loop/event_loop.h"
#include "server/store/disk_reserve.h"
#include "server/weights/adapter_files.h"
#include "server/weights/file_table.h"
#include "server/weights/output_owner.h"
#include "server/weights/tokenizer_copy.h"

namespace roundhouse {
namespace {

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

void Add(WeightFiles files, DirectoryPlan& plan) {
  for (FilePart& part : files.parts) {
    plan.total_bytes += part.file_bytes;
    plan.parts.push_back(std::move(part));
  }
  if (!files.index_name.empty()) {
    plan.texts[files.index_name] = files.index_json;
  }
}

absl::Status AddTensors(const SavedState& state, bool optimizer,
                        DirectoryPlan& plan) {
  const std::string temporary = TemporaryName(plan.final_path);
  ASSIGN_OR_RETURN(WeightFiles weights, TrainedFiles(state, temporary));
  WeightFiles moments;
  if (optimizer) {
    ASSIGN_OR_RETURN(moments, OptimizerFiles(state, temporary));
  }
  Add(std::move(weights), plan);
  Add(std::move(moments), plan);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DirectoryPlan> JobSaver::Plan(const std::string& path,
                                             const Snapshot& snapshot,
                                             Kind kind) const {
  DirectoryPlan plan;
  plan.final_path = path;
  const bool checkpoint = kind == Kind::kCheckpoint;
  plan.add_parts = [saved = SavedStateOf(snapshot.state, snapshot.update),
                    checkpoint](DirectoryPlan& whole) {
    return AddTensors(saved, checkpoint, whole);
  };
  if (checkpoint) {
    plan.sites = {kCheckpointFolder, kCheckpointText, kCheckpointRename,
                  kCheckpointRemove};
  }
  // The job store's reserve, which it may have given up.
  plan.left_bytes = kDiskReserveBytes;
  const AdapterConfig& adapter = snapshot.state.options().adapter;
  if (adapter.present()) {
    plan.texts[kAdapterConfigName] =
        AdapterConfigJson(adapter, options_.base.id, options_.base.revision);
  } else {
    ASSIGN_OR_RETURN(plan.texts["config.json"],
                     ExportedConfigJson(options_.model.config_json,
                                        snapshot.state.options().dtype));
  }
  plan.texts["trainer_state.json"] = snapshot.trainer_state;
  if (!snapshot.samples.empty()) {
    plan.texts["samples.jsonl"] = Lines(snapshot.samples);
  }
  for (const std::string& name : tokenizer_files_) {
    plan.copied_files.push_back(
        absl::StrCat(TokenizerCopy(options_.directory), "/", name));
  }
  return plan;
}

CheckpointManifest JobSaver::ManifestOf(const Snapshot& snapshot,
                                        const Trained& trained) const {
  CheckpointManifest manifest;
  manifest.step = snapshot.step;
  manifest.seed = static_cast<uint64_t>(options_.spec.spec().seed);
  manifest.dtype = DTypeName(snapshot.state.options().dtype);
  manifest.dataset_sha256 = options_.train->counts().tokens_sha256;
  manifest.tokens_trained = static_cast<double>(trained.tokens);
  manifest.loss_scaler = trained.loss_scaler;
  manifest.resolved_spec = options_.spec.ToJson();
  return manifest;
}

void JobSaver::Save(const Snapshot& snapshot, const Trained& trained,
                    Done done) {
  const int64_t step = snapshot.step;
  saving_ = true;
  begun_ns_ = MonotonicNs();
  auto finish = [this, step, done = std::move(done)](absl::Status status) {
    saving_ = false;
    if (status.ok()) {
      saved_step_ = step;
      Report(step);
    } else if (!absl::IsCancelled(status)) {  // it was held, and given up
      around_.events.OnCheckpointFailed(step, status);
    }
    done(status);
  };
  absl::StatusOr<DirectoryPlan> plan = Plan(
      CheckpointPath(options_.directory, step), snapshot, Kind::kCheckpoint);
  if (!plan.ok()) {
    finish(plan.status());
    return;
  }
  plan->manifest = ManifestOf(snapshot, trained);
  around_.writer.Write(*std::move(plan), std::move(finish));
}

void JobSaver::Report(int64_t step) const {
  CheckpointReport report;
  report.step = step;
  report.path = CheckpointPath(options_.directory, step);
  report.bytes = around_.writer.finished_bytes();
  report.seconds = static_cast<double>(MonotonicNs() - begun_ns_) * 1e-9;
  around_.events.OnCheckpoint(report);
}

void JobSaver::TryAgain() {
  begun_ns_ = MonotonicNs();
  around_.writer.TryAgain();
}

// The newer one is on disk: order on the background thread keeps a crash from
// finding neither.
void JobSaver::RemoveOld(std::optional<int64_t> best) {
  const int64_t limit = options_.spec.spec().save_total_limit;
  if (limit <= 0) return;
  const auto left = std::make_shared<std::vector<int64_t>>();
  around_.background.Run(
      [directory = options_.directory, limit, best, newest = saved_step_,
       left]() -> absl::Status {
        const absl::Status removed =
            RemoveOldCheckpoints(directory, limit, best, newest);
        auto found = FindCheckpointSteps(directory);
        if (found.ok()) *left = *std::move(found);
        return removed.ok() ? found.status() : removed;
      },
      [this, left](const absl::Status& status) {
        if (!left->empty()) around_.events.OnCheckpointsLeft(*left);
        const std::string text(status.message());
        if (absl::IsDataLoss(status)) {
          around_.events.OnCheckpointCorrupt(text);
        } else if (!status.ok()) {
          around_.events.OnNote(text);
        }
      });
}

absl::Status JobSaver::WriteOutput(const std::string& path,
                                   const Snapshot& snapshot,
                                   const std::vector<std::string>& metrics,
                                   Done done) {
  ASSIGN_OR_RETURN(DirectoryPlan plan, Plan(path, snapshot, Kind::kOutput));
  plan.texts["metrics.jsonl"] = Lines(metrics);
  plan.owner_uid = options_.uid;
  plan.texts[kOutputOwnerName] =
      OutputOwnerJson(absl::StrCat("job-", options_.job), options_.uid);
  around_.writer.Write(std::move(plan), std::move(done));
  return absl::OkStatus();
}

}  // namespace roundhouse
