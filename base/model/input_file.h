// Reading files that come from outside: regular files only, whole ranges only,
// and who may lead where is one object's affair.
#ifndef ROUNDHOUSE_BASE_MODEL_INPUT_FILE_H_
#define ROUNDHOUSE_BASE_MODEL_INPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files/checked_file.h"
#include "base/files/descriptor.h"

namespace roundhouse {

// An open file.  Move-only, thread-compatible.
class InputFile {
 public:
  // Opens a path that is the caller's own: links are followed wherever they
  // lead.
  // NOT_FOUND where there is none, INVALID_ARGUMENT where it is no regular
  // file, PERMISSION_DENIED, or UNAVAILABLE for anything else; names the path.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  // What the O_PATH descriptor `place` names, found beneath `root` by `path`.
  // Errors as Open's.
  static absl::StatusOr<InputFile> OpenAt(const Descriptor& place,
                                          std::string root, std::string path);

  // What OpenChecked opened.
  static InputFile Adopt(Descriptor descriptor, CheckedFile checked);

  InputFile(InputFile&& other) noexcept = default;

  const std::string& path() const { return checked_.path; }
  // When it was opened.
  uint64_t size_bytes() const { return checked_.identity.size_bytes; }
  const CheckedFile& checked() const { return checked_; }
  // For reading; the caller may duplicate it.
  int descriptor() const { return descriptor_.get(); }

  // Reads exactly `bytes` bytes from `offset`.  DATA_LOSS where the file ended
  // before, UNAVAILABLE for a failing disk.
  absl::Status Read(uint64_t offset, uint64_t bytes, char* to) const;

 private:
  InputFile(Descriptor descriptor, CheckedFile checked);

  Descriptor descriptor_;
  CheckedFile checked_;
};

// A folder that files may be opened in.
struct FoundDirectory {
  Descriptor descriptor;  // O_PATH
  std::string root;       // as CheckedFile's
  std::string path;       // absolute
};

inline constexpr size_t kMaxFolderNames = 100000;

// The names in the folder but "." and "..", in no order.  INVALID_ARGUMENT,
// without its path, where it can't be listed or has more than kMaxFolderNames.
absl::StatusOr<std::vector<std::string>> NamesIn(const FoundDirectory& folder);

// Opens files by their absolute names for somebody, and says where names may
// lead.  Implementations are thread-safe.
class FileOpener {
 public:
  virtual ~FileOpener() = default;

  // Errors as InputFile::Open's, and INVALID_ARGUMENT where the name leads
  // where it may not.
  virtual absl::StatusOr<InputFile> Open(const std::string& path) const = 0;
  // Its path is the real one.  NOT_FOUND; INVALID_ARGUMENT where it is no
  // directory, and as Open.
  virtual absl::StatusOr<FoundDirectory> OpenDirectory(
      const std::string& path) const = 0;

  // Whether something of that name is there.  It may be something that Open
  // refuses: who needs the file is told why.
  bool IsThere(const std::string& path) const;
};

// Opens everything: for tests, tools, and what only this user can have written.
const FileOpener& AnyFiles();

// INVALID_ARGUMENT where the file is larger than `max_bytes`.
absl::Status CheckSize(const InputFile& file, uint64_t max_bytes);

// Whether a file that begins so is what git-lfs leaves in place of one that it
// has not downloaded.
bool IsLfsPointer(absl::string_view first_bytes);
// INVALID_ARGUMENT, with what to do, where the file is such a pointer; errors
// of InputFile::Read.
absl::Status CheckNoLfsPointer(const InputFile& file);

// All of a small file.  INVALID_ARGUMENT also for a Git LFS pointer.
absl::StatusOr<std::string> ReadWhole(const InputFile& file,
                                      uint64_t max_bytes);
absl::StatusOr<std::string> ReadWholeFile(const FileOpener& files,
                                          const std::string& path,
                                          uint64_t max_bytes);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_MODEL_INPUT_FILE_H_
