// Engine: what is deleted of jobs that have ended, and who reads it.
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/admission/sample_names.h"
#include "server/jobs/engine.h"

namespace roundhouse {
namespace {

// The folders of all files that it reads.
std::vector<std::string> SourcesOf(const ExportPlan& plan) {
  std::set<std::string> folders;
  const auto add = [&folders](const CheckedFile& file) {
    if (file.path.empty()) return;
    folders.insert(std::filesystem::path(file.path).parent_path().string());
  };
  for (const CopiedFile& copied : plan.copied_files) add(copied.file);
  for (const ExportPiece& piece : plan.pieces) {
    add(piece.rows.base.file);
    add(piece.rows.lora_a.file);
    add(piece.rows.lora_b.file);
  }
  return {folders.begin(), folders.end()};
}

}  // namespace

DiskKeeper::Calls Engine::DiskCalls() {
  return {.check_over = [this](const std::string& id) { return CheckOver(id); },
          .gone =
              [this](const std::string& id) {
                world_.loop.Post([this, id] { OnDeleted(id); }).IgnoreError();
              }};
}

absl::Status Engine::CheckOver(const std::string& id) {
  return OnLoop([this, id]() -> absl::StatusOr<JobRecord> {
           if (running_.Find(id) != nullptr || transitions_.Waits(id)) {
             return absl::FailedPreconditionError(
                 absl::StrCat(id, " is just ending; try again in a moment"));
           }
           return world_.store.Get(id);
         })
      .status();
}

void Engine::OnDeleted(const std::string& id) {
  status_.HideEnded(id);
  world_.metrics.DropJob(id);
  UpdateCounts();
}

absl::StatusOr<SampleSource> Engine::OpenSample(
    const SampleQuestion& question) {
  ASSIGN_OR_RETURN(SampleSource source,
                   OpenNamedSample(admission_->names(), admission_->roots(),
                                   question.model, {question.caller}));
  ASSIGN_OR_RETURN(
      source.reading,
      readings_.Begin({source.path, source.model.path},
                      absl::StrCat("a sample of ", question.caller.owner())));
  return source;
}

absl::StatusOr<ExportPlan> Engine::PlanExport(const ExportRequest& request) {
  ASSIGN_OR_RETURN(ExportPlan plan, admission_->exports().Plan(request));
  ASSIGN_OR_RETURN(
      plan.reading,
      readings_.Begin(SourcesOf(plan),
                      absl::StrCat("an export of ", request.caller.owner())));
  return plan;
}

}  // namespace roundhouse
