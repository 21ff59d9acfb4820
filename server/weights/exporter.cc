#include "server/weights/exporter.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/weights/checkpoint.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

// What an earlier daemon was making when it ended.
void RemoveLeftover(const std::string& note_path) {
  std::ifstream note(note_path, std::ios::binary);
  const std::string path(std::istreambuf_iterator<char>(note), {});
  std::error_code error;
  if (absl::StartsWith(fs::path(path).filename().string(),
                       kExportTemporaryPrefix)) {
    RH_LOG(kInfo) << "removing an unfinished export: " << path;
    fs::remove_all(path, error);
  }
  if (error) {
    RH_LOG(kError) << "removing " << path << ": " << error.message();
    return;
  }
  fs::remove(note_path, error);
}

// The files with their headers, which the files worker fills.
absl::Status BeginExport(const ExportPlan& plan, const std::string& note_path) {
  RETURN_IF_ERROR(
      WriteFileAtomically(note_path, TemporaryPath(plan.directory)));
  RETURN_IF_ERROR(BeginDirectory(plan.directory));
  for (const FilePart& part : plan.directory.parts) {
    RETURN_IF_ERROR(WriteFileAtomically(part.path, part.prefix));
  }
  return absl::OkStatus();
}

void RemoveExport(const ExportPlan& plan, const std::string& note_path) {
  AbandonDirectory(plan.directory);
  std::error_code error;
  fs::remove(note_path, error);
}

absl::Status CheckSizes(const ExportPlan& plan) {
  for (const FilePart& part : plan.directory.parts) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(part.path, error);
    if (!error && bytes == part.file_bytes) continue;
    return absl::InternalError(absl::StrCat(part.path, ": ", bytes, " bytes, ",
                                            part.file_bytes, " expected"));
  }
  return absl::OkStatus();
}

absl::Status FinishExport(const ExportPlan& plan,
                          const std::string& note_path) {
  KillPoint("daemon.export.before_finish");
  absl::Status status = CheckSizes(plan);
  if (status.ok()) status = FinishDirectory(plan.directory);
  // Of one that was renamed nothing is there to be removed but the note.
  RemoveExport(plan, note_path);
  return status;
}

// As a caller sees it, with the field that it is about.
absl::Status Explained(const absl::Status& status) {
  if (!ErrorReason(status).empty()) return status;
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return FieldError(status.code(), "STORAGE_FULL", "output",
                        "output: " + message);
    case absl::StatusCode::kAlreadyExists:
      return FieldError(status.code(), "INVALID_VALUE", "output",
                        "output: " + message);
    // A file of the source that is gone or was changed meanwhile, or a value
    // that the dtype can't hold.
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
      return FieldError("INVALID_VALUE", "source", "source: " + message);
    default:
      return status;
  }
}

}  // namespace

Exporter::Exporter(EventLoop& loop, WorkerPool& pool, std::string note_path,
                   Planner planner)
    : loop_(loop),
      pool_(pool),
      note_path_(std::move(note_path)),
      planner_(std::move(planner)) {
  if (fs::exists(note_path_)) RemoveLeftover(note_path_);
}

std::shared_ptr<ExportTask> Exporter::Start(const ExportRequest& request) {
  auto task = std::make_shared<ExportTask>();
  const absl::Status posted = loop_.Post(
      [this, task, request] { Enqueue({.task = task, .request = request}); });
  if (!posted.ok()) task->Finish(posted);
  return task;
}

void Exporter::Enqueue(Export waiting) {
  std::erase_if(waiting_, [](const Export& other) {
    if (!other.task->cancelled()) return false;
    other.task->Finish(absl::CancelledError("the export was cancelled"));
    return true;
  });
  if (stopping_) {
    waiting.task->Finish(absl::UnavailableError("the server is stopping"));
  } else if (waiting_.size() >= kMaxWaitingExports) {
    waiting.task->Finish(
        FieldError(absl::StatusCode::kResourceExhausted, "QUOTA", "",
                   absl::StrCat(kMaxWaitingExports,
                                " exports wait already; try again later")));
  } else {
    waiting_.push_back(std::move(waiting));
    Next();
  }
}

void Exporter::Next() {
  while (!current_.has_value() && !waiting_.empty()) {
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    if (current_->task->cancelled()) {
      End(absl::CancelledError("the export was cancelled"));
      continue;
    }
    auto plan = std::make_shared<absl::StatusOr<ExportPlan>>(
        absl::InternalError("not planned"));
    InBackground(
        [this, plan, request = current_->request]() -> absl::Status {
          *plan = planner_(request);
          RETURN_IF_ERROR(plan->status());
          const absl::Status begun = BeginExport(**plan, note_path_);
          if (!begun.ok()) RemoveExport(**plan, note_path_);
          return begun;
        },
        [this, plan](const absl::Status& status) {
          OnPlanned(status.ok() ? *std::move(*plan)
                                : absl::StatusOr<ExportPlan>(status));
        });
  }
}

void Exporter::OnPlanned(absl::StatusOr<ExportPlan> plan) {
  if (!plan.ok()) {
    End(plan.status());
    return;
  }
  current_->plan = *std::move(plan);
  current_->progress = {.kind = current_->plan.kind,
                        .total_bytes = current_->plan.bytes};
  current_->task->SetProgress(current_->progress);
  current_->writing = true;
  SendPiece();
}

void Exporter::SendPiece() {
  Export& exported = *current_;
  if (stopping_) {
    Abandon(absl::UnavailableError("the server is stopping"));
  } else if (exported.task->cancelled()) {
    Abandon(absl::CancelledError("the export was cancelled"));
  } else if (exported.next_piece == exported.plan.pieces.size()) {
    Finish();
  } else {
    wire::MergeRows rows = exported.plan.pieces[exported.next_piece].rows;
    exported.operation = wire::kMergeOperation | next_operation_++;
    rows.operation = exported.operation;
    // When the worker is down, its coming up sends it.
    if (pool_.up(pool_.FilesWorker())) {
      pool_.Send(pool_.FilesWorker(), std::move(rows));
    }
  }
}

void Exporter::OnWorkerUp() {
  if (current_.has_value() && current_->writing) SendPiece();
}

void Exporter::OnWorkerDown(const std::string& why) {
  if (!current_.has_value() || !current_->writing) return;
  if (++current_->deaths < kMaxPieceDeaths) return;
  Abandon(absl::InternalError(absl::StrCat(
      "the files worker died ", current_->deaths, " times over tensor ",
      current_->plan.pieces[current_->next_piece].tensor, ": ", why)));
}

void Exporter::OnMessage(const wire::Message& message) {
  if (!current_.has_value() || !current_->writing) return;
  if (const auto* done = std::get_if<wire::FileOpDone>(&message.body)) {
    if (done->operation == current_->operation) OnPieceDone();
  } else if (const auto* failed = std::get_if<wire::Failed>(&message.body)) {
    if (failed->id != current_->operation) return;
    Abandon(absl::Status(
        static_cast<absl::StatusCode>(failed->code),
        absl::StrCat("tensor ",
                     current_->plan.pieces[current_->next_piece].tensor, ": ",
                     failed->text)));
  }
}

void Exporter::OnPieceDone() {
  Export& exported = *current_;
  exported.progress.done_bytes +=
      exported.plan.pieces[exported.next_piece].bytes;
  exported.task->SetProgress(exported.progress);
  ++exported.next_piece;
  exported.deaths = 0;
  SendPiece();
}

void Exporter::Finish() {
  current_->writing = false;
  auto plan = std::make_shared<ExportPlan>(std::move(current_->plan));
  InBackground([this, plan] { return FinishExport(*plan, note_path_); },
               [this, plan](const absl::Status& status) {
                 if (!status.ok()) return End(status);
                 End(plan->directory.final_path);
               });
}

void Exporter::Abandon(const absl::Status& why) {
  current_->writing = false;
  auto plan = std::make_shared<ExportPlan>(std::move(current_->plan));
  InBackground(
      [this, plan, why] {
        RemoveExport(*plan, note_path_);
        return why;
      },
      [this](const absl::Status& status) { End(status); });
}

void Exporter::End(absl::StatusOr<std::string> result) {
  const std::shared_ptr<ExportTask> task = std::move(current_->task);
  current_.reset();
  if (result.ok()) {
    task->Finish(std::move(result));
  } else {
    task->Finish(Explained(result.status()));
  }
  Next();
}

void Exporter::Stop() {
  stopping_ = true;
  const absl::Status why = absl::UnavailableError("the server is stopping");
  for (const Export& waiting : std::exchange(waiting_, {})) {
    waiting.task->Finish(why);
  }
  if (current_.has_value() && current_->writing) Abandon(why);
}

void Exporter::InBackground(Work work, Done done) {
  const bool taken = background_.TryRun([this, work, done] {
    absl::Status status = work();  // moved as JobRunner's is
    // Refused only when the daemon is stopping.
    loop_.Post([status = std::move(status), done] { done(status); })
        .IgnoreError();
  });
  ROUNDHOUSE_CHECK(taken) << "more background work than an export ever has";
}

}  // namespace roundhouse
