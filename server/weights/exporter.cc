#include "server/weights/exporter.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files/durable_file.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "server/spec/spec_error.h"
#include "server/weights/checkpoint.h"
#include "server/weights/export_directory.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

// Beside `output`, of a name that nothing has.
std::string TemporaryFor(const std::string& output) {
  std::random_device random;
  const fs::path path(output);
  const std::string name =
      absl::StrFormat("%s%s-%08x%08x", kExportTemporaryPrefix,
                      path.filename().string(), random(), random());
  return (path.parent_path() / name).string();
}

// Where the note stays, the next daemon finds nothing to remove of the export.
void RemoveNote(const std::string& note_path) {
  const absl::Status removed = RemoveFile(kExportNote, note_path);
  if (!removed.ok()) RH_LOG(kWarning) << removed.message();
}

// How many that can't be removed are noted; the oldest is forgotten.
constexpr size_t kMaxNotedExports = 64;

// The note has the directories of exports that did not end, which have no NUL
// in their names.
std::vector<std::string> ReadNote(const std::string& note_path) {
  std::ifstream note(note_path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(note), {});
  return absl::StrSplit(text, '\0', absl::SkipEmpty());
}

// Removes what the note names, and the note; what can't be removed is answered,
// and stays in it.
std::vector<std::string> RemoveLeftovers(const FileOpener& files,
                                         const std::string& note_path) {
  std::vector<std::string> left = ReadNote(note_path);
  std::erase_if(left, [&](const std::string& path) {
    const absl::Status removed = ExportDirectory::RemoveLeftover(files, path);
    if (!removed.ok()) RH_LOG(kError) << removed;
    return removed.ok();
  });
  if (left.empty()) RemoveNote(note_path);
  return left;
}

// As a caller sees it, with the field that it is about.
absl::Status Explained(const absl::Status& status) {
  if (ErrorReason(status) != FieldReason::kNone) return status;
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return FieldError(status.code(), FieldReason::kStorageFull, "output",
                        message);
    case absl::StatusCode::kAlreadyExists:
      return FieldError(status.code(), FieldReason::kInvalidValue, "output",
                        message);
    // A file of the source that is gone or was changed meanwhile, or a value
    // that the dtype can't hold.
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
      return FieldError(FieldReason::kInvalidValue, "source", message);
    default:
      return status;
  }
}

}  // namespace

Exporter::Exporter(EventLoop& loop, FilesLine& files_line,
                   const FileOpener& files, std::string note_path,
                   Planner planner)
    : loop_(loop),
      files_line_(files_line),
      files_(files),
      note_path_(std::move(note_path)),
      planner_(std::move(planner)),
      background_(loop, Background::Thread::kOwn) {
  if (PathExists(note_path_)) RemoveLeftovers(files_, note_path_);
}

Exporter::~Exporter() { files_line_.Forget(piece_); }

std::shared_ptr<ExportTask> Exporter::Start(const ExportRequest& request) {
  auto task = std::make_shared<ExportTask>();
  const absl::Status posted = loop_.Post(
      [this, task, request] { Enqueue({.task = task, .request = request}); });
  if (!posted.ok()) task->Finish(posted);
  return task;
}

// The files with their headers, which the files worker fills.
absl::Status Exporter::Begin(const ExportPlan& plan, Being& being) const {
  const std::string temporary = TemporaryFor(plan.output);
  std::vector<std::string> noted;
  if (PathExists(note_path_)) noted = RemoveLeftovers(files_, note_path_);
  if (noted.size() >= kMaxNotedExports) noted.erase(noted.begin());
  noted.push_back(temporary);
  RETURN_IF_ERROR(WriteFileDurably(kExportNote, note_path_,
                                   absl::StrJoin(noted, std::string(1, '\0'))));
  ASSIGN_OR_RETURN(being.directory,
                   ExportDirectory::Make(files_, temporary, plan.disk_bytes));
  for (const FilePart& part : plan.parts) {
    ASSIGN_OR_RETURN(CheckedFile file,
                     being.directory->Create(part.path, part.prefix));
    being.files.push_back(std::move(file));
  }
  return absl::OkStatus();
}

// What the files worker does not write, and the name.
absl::Status Exporter::Fill(const ExportPlan& plan, Being& being) const {
  KillPoint("daemon.export.before_finish");
  ExportDirectory& directory = *being.directory;
  for (const FilePart& part : plan.parts) {
    ASSIGN_OR_RETURN(const uint64_t bytes, directory.SizeOf(part.path));
    if (bytes == part.file_bytes) continue;
    return absl::InternalError(absl::StrCat(part.path, ": ", bytes, " bytes, ",
                                            part.file_bytes, " expected"));
  }
  for (const CopiedFile& copied : plan.copied_files) {
    RETURN_IF_ERROR(directory.Copy(copied.file, copied.name));
  }
  for (const auto& [name, text] : plan.texts) {
    RETURN_IF_ERROR(directory.Write(name, text));
  }
  return directory.Finish(fs::path(plan.output).filename().string());
}

// What is under its name stays.
void Exporter::Remove(Being& being) const {
  being.directory.reset();
  RemoveLeftovers(files_, note_path_);
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
    waiting.task->Finish(FieldError(
        absl::StatusCode::kResourceExhausted, FieldReason::kQuota, "",
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
    auto being = std::make_shared<Being>();
    background_.Run(
        [this, plan, being, request = current_->request]() -> absl::Status {
          *plan = planner_(request);
          RETURN_IF_ERROR(plan->status());
          absl::Status begun = Begin(**plan, *being);
          if (!begun.ok()) Remove(*being);
          return begun;
        },
        [this, plan, being](const absl::Status& status) {
          OnPlanned(status.ok() ? *std::move(*plan)
                                : absl::StatusOr<ExportPlan>(status),
                    being);
        });
  }
}

void Exporter::OnPlanned(absl::StatusOr<ExportPlan> plan,
                         std::shared_ptr<Being> being) {
  if (!plan.ok()) {
    End(plan.status());
    return;
  }
  current_->being = std::move(being);
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
    const ExportPiece& piece = exported.plan.pieces[exported.next_piece];
    wire::MergeRows rows = piece.rows;
    rows.output = exported.being->files[piece.part];
    piece_ = files_line_.Run(
        std::move(rows),
        [this](const absl::Status& status) { OnPiece(status); },
        kMaxPieceDeaths);
  }
}

void Exporter::OnPiece(const absl::Status& status) {
  piece_ = FilesLine::Ticket::kNone;
  if (!current_.has_value() || !current_->writing) return;
  Export& exported = *current_;
  const ExportPiece& piece = exported.plan.pieces[exported.next_piece];
  if (!status.ok()) {
    return Abandon(absl::Status(
        status.code(),
        absl::StrCat("tensor ", piece.tensor, ": ", status.message())));
  }
  exported.progress.done_bytes += piece.bytes;
  exported.task->SetProgress(exported.progress);
  ++exported.next_piece;
  SendPiece();
}

void Exporter::Finish() {
  current_->writing = false;
  auto plan = std::make_shared<ExportPlan>(std::move(current_->plan));
  background_.Run(
      [this, plan, being = current_->being] {
        absl::Status status = Fill(*plan, *being);
        Remove(*being);
        return status;
      },
      [this, plan](const absl::Status& status) {
        plan->reading.reset();  // before anybody hears that it is over
        if (!status.ok()) return End(status);
        End(plan->output);
      });
}

void Exporter::Abandon(const absl::Status& why) {
  current_->writing = false;
  files_line_.Forget(std::exchange(piece_, FilesLine::Ticket::kNone));
  // A status of its own: two threads share none.
  background_.Run(
      [this, being = current_->being, code = why.code(),
       text = std::string(why.message())] {
        Remove(*being);
        return absl::Status(code, text);
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

}  // namespace roundhouse
