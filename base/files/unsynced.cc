#include "base/files/unsynced.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "base/files/descriptor.h"
#include "base/mutex.h"

namespace roundhouse {
namespace {

using FileId = std::pair<dev_t, ino_t>;

struct Contents {
  Descriptor file;  // of our own
  off_t bytes_before = 0;
  std::vector<std::pair<off_t, size_t>> ranges;  // written over
};

struct Name {
  FileId folder;
  std::string from;  // "": a new file
  FileId from_folder;
  std::string to;
  unsigned int flags = 0;
  bool replaced = false;  // what was there is at ReplacedPath(to)
};

struct Unsynced {
  std::map<FileId, Contents> contents;
  std::vector<Name> names;  // in the order that they were made
};

std::atomic<bool> watching{false};
Mutex mutex;
Unsynced& All() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* const all = new Unsynced;
  return *all;
}

bool Watching() { return watching.load(std::memory_order_relaxed); }

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

FileId IdOf(const struct stat& info) { return {info.st_dev, info.st_ino}; }

FileId FolderId(const std::string& path) {
  struct stat info = {};
  stat(FolderOf(path).c_str(), &info);
  return IdOf(info);
}

std::string ReplacedPath(const std::string& path) {
  return path + ".replaced-and-not-synced";
}

void TakeBack(const Contents& contents) {
  for (const auto& [offset, bytes] : contents.ranges) {
    const std::vector<char> zeros(bytes);
    if (pwrite(contents.file.get(), zeros.data(), bytes, offset) < 0) {
      perror("taking back what was written");
    }
  }
  if (ftruncate(contents.file.get(), contents.bytes_before) != 0) {
    perror("taking back what was written");
  }
}

void TakeBack(const Name& name) {
  if (name.from.empty()) {
    unlink(name.to.c_str());
    return;
  }
  const unsigned int flags = name.flags & RENAME_EXCHANGE;
  renameat2(AT_FDCWD, name.to.c_str(), AT_FDCWD, name.from.c_str(), flags);
  if (name.replaced) rename(ReplacedPath(name.to).c_str(), name.to.c_str());
}

}  // namespace

void WatchUnsynced(bool watch) { watching = watch; }

void NoteCreated(const std::string& path) {
  if (!Watching()) return;
  MutexLock lock(mutex);
  Name& name = All().names.emplace_back();
  name.folder = FolderId(path);
  name.from_folder = name.folder;
  name.to = path;
}

void NoteWritten(int fd, int64_t offset, size_t bytes) {
  struct stat info;
  if (!Watching() || fstat(fd, &info) != 0) return;
  MutexLock lock(mutex);
  Contents& contents = All().contents[IdOf(info)];
  if (contents.file.get() < 0) {
    // A descriptor for writing that outlives the caller's.
    contents.file = Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    contents.bytes_before = info.st_size;
  }
  if (offset < 0 || offset >= info.st_size) return;
  contents.ranges.emplace_back(
      offset, std::min<uint64_t>(bytes, info.st_size - offset));
}

void NoteSynced(int fd) {
  struct stat info;
  if (!Watching() || fstat(fd, &info) != 0) return;
  const FileId id = IdOf(info);
  MutexLock lock(mutex);
  All().contents.erase(id);
  std::erase_if(All().names, [&](const Name& name) {
    if (name.folder != id && name.from_folder != id) return false;
    if (name.replaced) unlink(ReplacedPath(name.to).c_str());
    return true;
  });
}

void KeepReplaced(const std::string& to, unsigned int flags) {
  if (!Watching() || flags != 0) return;
  unlink(ReplacedPath(to).c_str());
  // Fails where nothing is replaced.
  [[maybe_unused]] const int kept = link(to.c_str(), ReplacedPath(to).c_str());
}

void NoteRenamed(const std::string& from, const std::string& to,
                 unsigned int flags) {
  if (!Watching()) return;
  MutexLock lock(mutex);
  Name& name = All().names.emplace_back();
  name.folder = FolderId(to);
  name.from = from;
  name.from_folder = FolderId(from);
  name.to = to;
  name.flags = flags;
  name.replaced = flags == 0 && access(ReplacedPath(to).c_str(), F_OK) == 0;
}

void TakeBackUnsynced() {
  MutexLock lock(mutex);
  for (const auto& [id, contents] : All().contents) TakeBack(contents);
  auto& names = All().names;
  std::for_each(names.rbegin(), names.rend(),
                [](const Name& name) { TakeBack(name); });
}

}  // namespace roundhouse
