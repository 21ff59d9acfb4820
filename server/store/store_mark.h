// What a job store has given out, in a second small file beside it.
//
// The mark is written after a commit and before its answer.  A store that is
// behind its mark has lost acknowledged writes: the loss shows, and numbers and
// revisions up to the mark are never given again.
//
// The file has two slots of a page each, written in turn, so that a torn write
// leaves the other one.  A slot is one line of text with its own SHA-256:
//
//   roundhouse mark: commit 17 job 3 revision 41 sha256 5d41...
//   roundhouse mark: commit 17 job 3 revision 41 accounts 1 sha256 77ac...
//
// Thread-compatible.
#ifndef ROUNDHOUSE_SERVER_STORE_STORE_MARK_H_
#define ROUNDHOUSE_SERVER_STORE_STORE_MARK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files/descriptor.h"

namespace roundhouse {

inline constexpr int kMarkSlotBytes = 4096;

struct StoreMark {
  int64_t commit = 0;    // Commits of the store, ever.
  int64_t job = 0;       // The last job number given.
  int64_t revision = 0;  // The last event's.
  int64_t accounts = 0;  // 1: there were users, so that not everybody is admin.
  bool operator==(const StoreMark&) const = default;
};

class MarkFile {
 public:
  // Opens or makes the file.  kResourceExhausted: the disk is full;
  // kInternal with the system's words.
  static absl::StatusOr<std::unique_ptr<MarkFile>> Open(
      const std::string& path);
  MarkFile(const MarkFile&) = delete;
  MarkFile& operator=(const MarkFile&) = delete;

  // The newest mark that was there when the file was opened; nullopt: none, or
  // none that can be read.
  const std::optional<StoreMark>& found() const { return found_; }
  // Whether a slot was there that can't be read.
  bool damaged() const { return damaged_; }

  // On disk when it returns.  Blocks for about one fsync.
  absl::Status Write(const StoreMark& mark);
  // The same in both slots, whatever they held.
  absl::Status Reset(const StoreMark& mark);

 private:
  MarkFile(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status Read();
  absl::Status WriteSlot(int slot, const StoreMark& mark);

  const std::string path_;
  const Descriptor file_;
  std::optional<StoreMark> found_;
  bool damaged_ = false;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_STORE_MARK_H_
