// Writes what people ask to be exported, one export at a time.
//
//   plan (a thread) -> pieces (files worker, from the loop) -> finish (a
//   thread)
//
// The files worker gets one piece at a time and keeps nothing between two, so a
// running job's checkpoints come in between, and a piece whose worker died is
// sent again.  The directory is made under a name of its own beside the output
// and renamed when all is on disk; the name is noted in a file meanwhile, so
// that the next daemon removes what a killed one left.
//
// Start is thread-safe; the rest runs on the loop's thread.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_EXPORTER_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_EXPORTER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/wire/messages.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/weights/export_directory.h"
#include "server/weights/export_plan.h"
#include "server/weights/export_task.h"
#include "server/workers/files_line.h"

namespace roundhouse {

// Behind the one that runs; another one is refused.
// All users' exports; of one user the API admits kMaxStreamsOfKind.
inline constexpr size_t kMaxWaitingExports = 64;
// Deaths of the files worker over one piece before the export is given up.
inline constexpr int kMaxPieceDeaths = 5;

class Exporter {
 public:
  // Finds and checks what is asked; called on a thread that may wait for disks.
  using Planner =
      std::function<absl::StatusOr<ExportPlan>(const ExportRequest&)>;

  // `files` finds the folders of outputs.  `note_path`: the file that notes the
  // directory being made; what an earlier daemon noted there is removed.
  // References outlive the exporter.
  Exporter(EventLoop& loop, FilesLine& files_line, const FileOpener& files,
           std::string note_path, Planner planner);
  // Waits for the thread.  REQUIRES: the loop has ended.
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Any thread.  RESOURCE_EXHAUSTED (too many wait) and UNAVAILABLE (the daemon
  // stops) come as the task's result, too.
  std::shared_ptr<ExportTask> Start(const ExportRequest& request);

  // Ends the running export and those that wait with UNAVAILABLE.
  void Stop();

 private:
  // What has been made of an export.
  struct Being {
    std::unique_ptr<ExportDirectory> directory;
    std::vector<CheckedFile> files;  // of the plan's parts
  };
  struct Export {
    std::shared_ptr<ExportTask> task;
    ExportRequest request;
    ExportPlan plan;
    std::shared_ptr<Being> being;  // made
    bool writing = false;          // pieces are under way
    size_t next_piece = 0;
    ExportProgress progress;
  };

  void Enqueue(Export waiting);
  void Next();
  absl::Status Begin(const ExportPlan& plan, Being& being) const;
  absl::Status Fill(const ExportPlan& plan, Being& being) const;
  void Remove(Being& being) const;
  void OnPlanned(absl::StatusOr<ExportPlan> plan, std::shared_ptr<Being> being);
  void SendPiece();
  void OnPiece(const absl::Status& status);
  void Finish();
  // Removes what was written; the export ends with `why`.
  void Abandon(const absl::Status& why);
  void End(absl::StatusOr<std::string> result);

  EventLoop& loop_;
  FilesLine& files_line_;
  const FileOpener& files_;
  const std::string note_path_;
  const Planner planner_;
  std::deque<Export> waiting_;
  std::optional<Export> current_;
  FilesLine::Ticket piece_ = FilesLine::Ticket::kNone;  // under way
  bool stopping_ = false;
  Background background_;  // last: its thread ends first
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_EXPORTER_H_
