#include "server/store/power_cut_vfs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "sqlite3.h"

namespace roundhouse {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSectorBytes = 512;

// The file of the VFS below lies behind it.
struct OpenFile {
  sqlite3_file base;
  PowerCutVfs* disk;
  const char* path;  // SQLite's, as long as the file is open; null: temporary.

  sqlite3_file* below() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

OpenFile* Of(sqlite3_file* file) { return reinterpret_cast<OpenFile*>(file); }
sqlite3_file* Below(sqlite3_file* file) { return Of(file)->below(); }
sqlite3_vfs* Below(sqlite3_vfs* vfs) {
  return static_cast<sqlite3_vfs*>(vfs->pAppData);
}
// SQLite's struct has no place for more than one pointer.
PowerCutVfs* installed = nullptr;

int Close(sqlite3_file* file) {
  return Below(file)->pMethods->xClose(Below(file));
}
int Read(sqlite3_file* file, void* to, int size, sqlite3_int64 at) {
  return Below(file)->pMethods->xRead(Below(file), to, size, at);
}
int Write(sqlite3_file* file, const void* from, int size, sqlite3_int64 at) {
  OpenFile* const open = Of(file);
  if (open->path != nullptr &&
      !open->disk->Write(open->path, at,
                         std::string(static_cast<const char*>(from), size))) {
    return SQLITE_IOERR_WRITE;
  }
  return Below(file)->pMethods->xWrite(Below(file), from, size, at);
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  OpenFile* const open = Of(file);
  if (open->path != nullptr && !open->disk->Truncate(open->path, size)) {
    return SQLITE_IOERR_TRUNCATE;
  }
  return Below(file)->pMethods->xTruncate(Below(file), size);
}
int Sync(sqlite3_file* file, int) {
  OpenFile* const open = Of(file);
  if (open->path != nullptr && !open->disk->Sync(open->path)) {
    return SQLITE_IOERR_FSYNC;
  }
  return SQLITE_OK;
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Below(file)->pMethods->xFileSize(Below(file), size);
}
int Lock(sqlite3_file* file, int lock) {
  return Below(file)->pMethods->xLock(Below(file), lock);
}
int Unlock(sqlite3_file* file, int lock) {
  return Below(file)->pMethods->xUnlock(Below(file), lock);
}
int CheckReservedLock(sqlite3_file* file, int* held) {
  return Below(file)->pMethods->xCheckReservedLock(Below(file), held);
}
int FileControl(sqlite3_file* file, int what, void* with) {
  return Below(file)->pMethods->xFileControl(Below(file), what, with);
}
int SectorSize(sqlite3_file*) { return kSectorBytes; }
// Nothing is promised: what is overwritten may be torn.
int Characteristics(sqlite3_file*) { return 0; }
int ShmMap(sqlite3_file* file, int page, int size, int extend,
           void volatile** at) {
  return Below(file)->pMethods->xShmMap(Below(file), page, size, extend, at);
}
int ShmLock(sqlite3_file* file, int offset, int count, int flags) {
  return Below(file)->pMethods->xShmLock(Below(file), offset, count, flags);
}
void ShmBarrier(sqlite3_file* file) {
  Below(file)->pMethods->xShmBarrier(Below(file));
}
int ShmUnmap(sqlite3_file* file, int remove) {
  return Below(file)->pMethods->xShmUnmap(Below(file), remove);
}

// Version 2: without mapping the file itself, which would go past Write.
constexpr sqlite3_io_methods kMethods = {2,
                                         Close,
                                         Read,
                                         Write,
                                         Truncate,
                                         Sync,
                                         FileSize,
                                         Lock,
                                         Unlock,
                                         CheckReservedLock,
                                         FileControl,
                                         SectorSize,
                                         Characteristics,
                                         ShmMap,
                                         ShmLock,
                                         ShmBarrier,
                                         ShmUnmap,
                                         nullptr,
                                         nullptr};

int Open(sqlite3_vfs* vfs, sqlite3_filename path, sqlite3_file* file, int flags,
         int* got) {
  OpenFile* const open = Of(file);
  open->base.pMethods = nullptr;
  open->disk = installed;
  open->path = path;
  const int code =
      Below(vfs)->xOpen(Below(vfs), path, open->below(), flags, got);
  if (code == SQLITE_OK) open->base.pMethods = &kMethods;
  return code;
}

int Delete(sqlite3_vfs* vfs, const char* path, int sync) {
  if (!installed->Remove(path)) return SQLITE_IOERR_DELETE;
  return Below(vfs)->xDelete(Below(vfs), path, sync);
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Put(const std::string& bytes, size_t at, std::string* content) {
  content->resize(std::max(content->size(), at + bytes.size()), '\0');
  content->replace(at, bytes.size(), bytes);
}

// Sector by sector, as the file has them, each may have arrived or not.
void PutSome(const std::string& bytes, size_t at, std::mt19937_64* rng,
             std::string* content) {
  for (size_t from = 0; from < bytes.size();) {
    const size_t next =
        (at + from) / kSectorBytes * kSectorBytes + kSectorBytes;
    const size_t count = std::min(bytes.size() - from, next - (at + from));
    if ((*rng)() % 2 == 0) Put(bytes.substr(from, count), at + from, content);
    from += count;
  }
}

}  // namespace

PowerCutVfs::PowerCutVfs() {
  ROUNDHOUSE_CHECK(installed == nullptr) << "one at a time";
  sqlite3_vfs* const below = sqlite3_vfs_find(nullptr);
  ROUNDHOUSE_CHECK(below != nullptr);
  vfs_ = std::make_unique<sqlite3_vfs>(*below);
  vfs_->zName = "power-cut";
  vfs_->pAppData = below;
  vfs_->szOsFile = static_cast<int>(sizeof(OpenFile)) + below->szOsFile;
  vfs_->xOpen = Open;
  vfs_->xDelete = Delete;
  installed = this;
  ROUNDHOUSE_CHECK(sqlite3_vfs_register(vfs_.get(), 1) == SQLITE_OK);
}

PowerCutVfs::~PowerCutVfs() {
  sqlite3_vfs_unregister(vfs_.get());
  installed = nullptr;
}

void PowerCutVfs::CutAfter(int64_t changes) {
  MutexLock lock(mutex_);
  left_ = changes;
}

bool PowerCutVfs::cut() const {
  MutexLock lock(mutex_);
  return left_ < 0;
}

int64_t PowerCutVfs::changes() const {
  MutexLock lock(mutex_);
  return changes_;
}

bool PowerCutVfs::Count() {
  if (left_ < 0) return false;
  ++changes_;
  return --left_ >= 0;
}

// What a file holds when it is first changed has been there for long.
PowerCutVfs::File& PowerCutVfs::Of(const std::string& path) {
  const auto found = files_.find(path);
  if (found != files_.end()) return found->second;
  return files_.emplace(path, File{ReadAll(path), {}}).first->second;
}

// The one at which power goes may have arrived, too.
bool PowerCutVfs::Write(const std::string& path, int64_t at,
                        const std::string& bytes) {
  MutexLock lock(mutex_);
  if (left_ < 0) return false;
  Of(path).since.push_back({at, bytes});
  return Count();
}

bool PowerCutVfs::Truncate(const std::string& path, int64_t size) {
  MutexLock lock(mutex_);
  if (left_ < 0) return false;
  Of(path).since.push_back({size, std::nullopt});
  return Count();
}

bool PowerCutVfs::Sync(const std::string& path) {
  MutexLock lock(mutex_);
  File& file = Of(path);
  if (!Count()) return false;
  for (const Change& change : file.since) {
    if (change.bytes.has_value()) {
      Put(*change.bytes, change.at, &file.synced);
    } else {
      file.synced.resize(change.at, '\0');
    }
  }
  file.since.clear();
  return true;
}

bool PowerCutVfs::Remove(const std::string& path) {
  MutexLock lock(mutex_);
  if (!Count()) return false;
  files_[path] = File();
  return true;
}

void PowerCutVfs::Settle() {
  MutexLock lock(mutex_);
  files_.clear();
}

void PowerCutVfs::Restore(std::mt19937_64* rng) {
  MutexLock lock(mutex_);
  for (auto& [path, file] : files_) {
    std::string content = file.synced;
    for (const Change& change : file.since) {
      if (change.bytes.has_value()) {
        PutSome(*change.bytes, change.at, rng, &content);
      } else if ((*rng)() % 2 == 0) {
        content.resize(change.at, '\0');
      }
    }
    if (content.empty()) {
      fs::remove(path);
    } else {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    }
    fs::remove(path + "-shm");
  }
  files_.clear();
  left_ = INT64_MAX;
}

}  // namespace roundhouse
