#include "base/model/input_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/open_limit.h"
#include "base/files/whole_io.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr absl::string_view kLfsPointer =
    "version https://git-lfs.github.com/spec/";

absl::Status LfsPointerError(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   ": is a Git LFS pointer, the file itself was not "
                   "downloaded: run git lfs pull where it was cloned"));
}

absl::Status SystemError(const std::string& path, const char* what, int error) {
  const std::string message =
      absl::StrCat(path, ": ", what, ": ", OpenErrorText(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    case ENAMETOOLONG:
    case ELOOP:
      return absl::InvalidArgumentError(message);
    case EIO:
    case ESTALE:
      return absl::InternalError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Looked at before it is opened for reading, which would wait for the writer
  // of a FIFO and may move a device.
  const Descriptor place(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (place.get() < 0) return SystemError(path, "cannot be opened", errno);
  return OpenAt(place, "", path);
}

absl::StatusOr<InputFile> InputFile::OpenAt(const Descriptor& place,
                                            std::string root,
                                            std::string path) {
  struct stat info;
  if (fstat(place.get(), &info) != 0) {
    return SystemError(path, "cannot be examined", errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file"));
  }
  Descriptor descriptor = OpenForReading(place.get());
  if (descriptor.get() < 0) return SystemError(path, "cannot be opened", errno);
  return InputFile(std::move(descriptor),
                   {std::move(root), std::move(path), IdentityOf(info)});
}

InputFile InputFile::Adopt(Descriptor descriptor, CheckedFile checked) {
  return InputFile(std::move(descriptor), std::move(checked));
}

InputFile::InputFile(Descriptor descriptor, CheckedFile checked)
    : descriptor_(std::move(descriptor)), checked_(std::move(checked)) {}

absl::Status InputFile::Read(uint64_t offset, uint64_t bytes, char* to) const {
  const std::optional<size_t> got = ReadAt(descriptor(), offset, to, bytes);
  if (!got.has_value()) return SystemError(path(), "cannot be read", errno);
  if (*got == bytes) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path(), ": ends at byte ", offset + *got, ", ", bytes,
                   " bytes from byte ", offset, " were expected"));
}

bool FileOpener::IsThere(const std::string& path) const {
  return !absl::IsNotFound(Open(path).status());
}

namespace {

class AnyFileOpener final : public FileOpener {
 public:
  absl::StatusOr<InputFile> Open(const std::string& path) const override {
    return InputFile::Open(path);
  }
  absl::StatusOr<FoundDirectory> OpenDirectory(
      const std::string& path) const override {
    struct stat info;
    Descriptor place(open(path.c_str(), O_PATH | O_CLOEXEC));
    if (place.get() < 0 || fstat(place.get(), &info) != 0) {
      return SystemError(path, "cannot be opened", errno);
    }
    if (S_ISDIR(info.st_mode)) {
      std::error_code error;
      const auto real = std::filesystem::canonical(path, error);
      return FoundDirectory{std::move(place), "", error ? path : real.string()};
    }
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a directory"));
  }
};

}  // namespace

const FileOpener& AnyFiles() {
  static const AnyFileOpener files;
  return files;
}

absl::Status CheckSize(const InputFile& file, uint64_t max_bytes) {
  if (file.size_bytes() <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": ", file.size_bytes(), " bytes, at most ",
                   max_bytes, " are read"));
}

bool IsLfsPointer(absl::string_view first_bytes) {
  return absl::StartsWith(first_bytes, kLfsPointer);
}

absl::StatusOr<std::vector<std::string>> NamesIn(const FoundDirectory& folder) {
  Descriptor opened = OpenFolderForReading(folder.descriptor.get());
  DIR* const list = opened.get() < 0 ? nullptr : fdopendir(opened.get());
  if (list == nullptr) {
    const int error = errno;
    if (error == kOpenHangs) {
      return absl::UnavailableError(
          absl::StrCat("cannot be listed: ", OpenErrorText(error)));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("cannot be listed: ", std::strerror(error)));
  }
  opened.Release();  // the list's now
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(list, closedir);
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(list)) {
    const absl::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() >= kMaxFolderNames) {
      return absl::InvalidArgumentError(
          absl::StrCat("has more than ", kMaxFolderNames, " files"));
    }
    names.emplace_back(name);
  }
  return names;
}

absl::Status CheckNoLfsPointer(const InputFile& file) {
  std::string first(std::min<uint64_t>(file.size_bytes(), kLfsPointer.size()),
                    '\0');
  RETURN_IF_ERROR(file.Read(0, first.size(), first.data()));
  return IsLfsPointer(first) ? LfsPointerError(file.path()) : absl::OkStatus();
}

absl::StatusOr<std::string> ReadWhole(const InputFile& file,
                                      uint64_t max_bytes) {
  RETURN_IF_ERROR(CheckSize(file, max_bytes));
  std::string text(file.size_bytes(), '\0');
  RETURN_IF_ERROR(file.Read(0, text.size(), text.data()));
  if (IsLfsPointer(text)) return LfsPointerError(file.path());
  return text;
}

absl::StatusOr<std::string> ReadWholeFile(const FileOpener& files,
                                          const std::string& path,
                                          uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const InputFile file, files.Open(path));
  return ReadWhole(file, max_bytes);
}

}  // namespace roundhouse
