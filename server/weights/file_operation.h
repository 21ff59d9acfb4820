// The operation that a job has with the files worker: it has one at a time.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_WEIGHTS_FILE_OPERATION_H_
#define ROUNDHOUSE_SERVER_WEIGHTS_FILE_OPERATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "server/weights/file_table.h"
#include "server/workers/files_line.h"

namespace roundhouse {

// What of an operation the table does not say.
struct FileOperationOptions {
  uint64_t job = 0;
  uint64_t seed = 0;
};

class FileOperation {
 public:
  using Done = std::function<void(absl::Status)>;

  // `line` outlives it.  `after_each` comes after each operation's `done`, when
  // nothing of the operation is left.
  FileOperation(FilesLine& line, const FileOperationOptions& options,
                std::function<void()> after_each)
      : line_(line), options_(options), after_each_(std::move(after_each)) {}
  ~FileOperation() { Forget(); }
  FileOperation(const FileOperation&) = delete;
  FileOperation& operator=(const FileOperation&) = delete;

  // Once, from the loop, `done` gets what FilesLine says; it may run the next
  // one.  REQUIRES: !running(), or from within `done`.
  void Run(std::unique_ptr<FileTable> table, Done done);
  bool running() const { return pending_.has_value(); }
  // REQUIRES: within the `done` of an operation that succeeded, before it runs
  // another one.
  const FileTable& table() const { return *pending_->table; }
  // `done` does not come any more, and the table's memory is free.
  void Forget();

 private:
  struct Pending {
    std::unique_ptr<FileTable> table;
    FilesLine::Ticket ticket{};
    Done done;
  };

  void OnDone(const absl::Status& status);

  FilesLine& line_;
  const FileOperationOptions options_;
  const std::function<void()> after_each_;
  std::optional<Pending> pending_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_WEIGHTS_FILE_OPERATION_H_
