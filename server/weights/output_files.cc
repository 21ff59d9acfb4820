#include "server/weights/output_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/whole_io.h"
#include "base/status.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

absl::Status NotRead(const std::string& name, int error) {
  const std::string text = absl::StrCat(name, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == ELOOP || error == EXDEV)
    return absl::PermissionDeniedError(text);
  if (error == EMFILE || error == ENFILE || error == ENOMEM) {
    return absl::UnavailableError(text);
  }
  return absl::InternalError(text);
}

std::string StateOf(const struct stat& info) {
  const FileIdentity identity = IdentityOf(info);
  return absl::StrCat(identity.inode, "-", identity.size_bytes, "-",
                      identity.mtime_ns);
}

// Calls itself for folders; `prefix` "" or with a slash behind.
absl::Status ListBelow(int folder, const std::string& prefix, size_t depth,
                       std::vector<OutputFile>* files) {
  Descriptor opened = OpenFolderForReading(folder);
  if (opened.get() < 0) return NotRead(prefix, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(opened.get()),
                                                    closedir);
  if (listing == nullptr) return NotRead(prefix, errno);
  opened.Release();  // the listing's now
  while (const dirent* const entry = readdir(listing.get())) {
    const std::string part = entry->d_name;
    const std::string name = absl::StrCat(prefix, part);
    if (!CheckRelativeName(name).ok()) continue;  // nobody could ask for it
    const Descriptor place = OpenBeneath(folder, part, Links::kNone);
    struct stat info;
    if (place.get() < 0 || fstat(place.get(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode) && depth < kMaxNameParts) {
      RETURN_IF_ERROR(
          ListBelow(place.get(), absl::StrCat(name, "/"), depth + 1, files));
    }
    if (!S_ISREG(info.st_mode)) continue;
    files->push_back({.name = name,
                      .bytes = static_cast<uint64_t>(info.st_size),
                      .state = StateOf(info)});
    if (files->size() > kMaxUploadFiles) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", kMaxUploadFiles, " files"));
    }
  }
  return absl::OkStatus();
}

// Names may have been looked up by the directory's real name.
std::vector<std::string> RootsIn(const std::string& state_dir) {
  std::error_code error;
  const std::string real =
      std::filesystem::weakly_canonical(state_dir, error).string();
  std::vector<std::string> roots;
  for (const std::string& state : {state_dir, real}) {
    roots.push_back(state + "/outputs");
    roots.push_back(state + "/jobs");
  }
  return roots;
}

}  // namespace

OutputFiles::OutputFiles(const std::string& state_dir, uint64_t slice_bytes)
    : roots_(RootsIn(state_dir)), slice_bytes_(slice_bytes) {}

absl::StatusOr<Descriptor> OutputFiles::OpenDirectory(
    const std::string& directory) const {
  for (const std::string& root : roots_) {
    if (!absl::StartsWith(directory, root + "/")) continue;
    const Descriptor folder(
        open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0) return NotRead(root, errno);
    Descriptor found = OpenBeneath(
        folder.get(), directory.substr(root.size() + 1), Links::kNone);
    if (found.get() < 0) return NotRead(directory, errno);
    return found;
  }
  return absl::PermissionDeniedError(
      "only what jobs and exports made is downloaded: name a job, one of its "
      "checkpoints, or an export among the server's outputs");
}

absl::StatusOr<Descriptor> OutputFiles::OpenFile(const std::string& directory,
                                                 const OutputFile& file) const {
  const absl::Status named = CheckRelativeName(file.name);
  if (!named.ok()) return named;
  ASSIGN_OR_RETURN(const Descriptor folder, OpenDirectory(directory));
  const Descriptor place = OpenBeneath(folder.get(), file.name, Links::kNone);
  struct stat info;
  if (place.get() < 0 || fstat(place.get(), &info) != 0) {
    return NotRead(file.name, errno);
  }
  if (!S_ISREG(info.st_mode) || StateOf(info) != file.state) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.name, ": is another file now; begin again"));
  }
  Descriptor opened = OpenForReading(place.get());
  if (opened.get() < 0) return NotRead(file.name, errno);
  return opened;
}

absl::StatusOr<std::vector<OutputFile>> OutputFiles::List(
    const std::string& directory) {
  ASSIGN_OR_RETURN(const Descriptor folder, OpenDirectory(directory));
  std::vector<OutputFile> files;
  RETURN_IF_ERROR(ListBelow(folder.get(), "", 1, &files));
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

absl::StatusOr<std::string> OutputFiles::Read(const std::string& directory,
                                              const OutputFile& file,
                                              uint64_t offset) {
  ASSIGN_OR_RETURN(const Descriptor opened, OpenFile(directory, file));
  std::string data(kOutputChunkBytes, '\0');
  const auto got = ReadAt(opened.get(), offset, data.data(), data.size());
  if (!got.has_value()) return NotRead(file.name, errno);
  data.resize(*got);
  return data;
}

// It is nobody else's until it is kept again.
std::shared_ptr<OutputFiles::HalfHash> OutputFiles::TakeHash(
    const std::string& key, const std::string& caller) {
  MutexLock lock(mutex_);
  for (auto half = hashes_.begin(); half != hashes_.end(); ++half) {
    if ((*half)->key != key || (*half)->caller != caller) continue;
    std::shared_ptr<HalfHash> found = *half;
    hashes_.erase(half);
    return found;
  }
  auto fresh = std::make_shared<HalfHash>();
  fresh->key = key;
  fresh->caller = caller;
  return fresh;
}

// The oldest goes: the caller's own where he has many, else of whoever has
// several, else of all.
void OutputFiles::KeepHash(std::shared_ptr<HalfHash> half) {
  MutexLock lock(mutex_);
  std::string loser = half->caller;
  hashes_.push_front(std::move(half));
  std::map<std::string, size_t> counts;
  for (const auto& kept : hashes_) ++counts[kept->caller];
  if (counts[loser] <= kMaxHashesEach) {
    if (hashes_.size() <= kMaxHashesKept) return;
    for (const auto& [name, count] : counts) {
      if (count > counts[loser]) loser = name;
    }
    if (counts[loser] == 1) loser = hashes_.back()->caller;
  }
  const auto oldest =
      std::find_if(hashes_.rbegin(), hashes_.rend(),
                   [&](const auto& kept) { return kept->caller == loser; });
  hashes_.erase(std::next(oldest).base());
}

absl::StatusOr<FileHashProgress> OutputFiles::HashMore(
    const Descriptor& opened, const std::string& name,
    std::shared_ptr<HalfHash> half) {
  std::string piece(kIoPieceBytes, '\0');
  const uint64_t stop = half->hashed + slice_bytes_;
  while (half->hashed < stop) {
    const auto got =
        ReadAt(opened.get(), half->hashed, piece.data(), piece.size());
    if (!got.has_value()) return NotRead(name, errno);
    half->hash->Add(absl::string_view(piece.data(), *got));
    half->hashed += *got;
    if (*got < piece.size()) {
      return FileHashProgress{half->hashed, half->hash->Finish()};
    }
  }
  const FileHashProgress progress{.hashed_bytes = half->hashed};
  KeepHash(std::move(half));
  return progress;
}

absl::StatusOr<FileHashProgress> OutputFiles::Hash(const std::string& directory,
                                                   const OutputFile& file,
                                                   const std::string& caller) {
  ASSIGN_OR_RETURN(const Descriptor opened, OpenFile(directory, file));
  {
    // Each takes a thread of all callers' for a while.
    MutexLock lock(mutex_);
    if (!hashing_.insert(caller).second) {
      return FieldError(absl::StatusCode::kAborted, FieldReason::kTryLater, "",
                        absl::StrCat("another file of ", caller,
                                     " is being checked; try again"));
    }
  }
  auto progress = HashMore(
      opened, file.name,
      TakeHash(absl::StrCat(directory, "\n", file.name, "\n", file.state),
               caller));
  MutexLock lock(mutex_);
  hashing_.erase(caller);
  return progress;
}

}  // namespace roundhouse
