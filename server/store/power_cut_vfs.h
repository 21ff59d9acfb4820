// A disk that loses power, for tests: SQLite's files below it keep what was
// synced, and of what was written since an arbitrary part, torn at sectors.
//
//   PowerCutVfs disk;                     // now the VFS of every new
//   connection disk.CutAfter(40);                    // the 41st change fails,
//   and all after
//   ... open a store, work, see it fail, close it ...
//   disk.Restore(&rng);                   // the files as they may be found
//   then
//
// Changes are writes, truncations, syncs and removals.  Shared memory files are
// no files: they are gone after a cut.  One object at a time; thread-safe but
// for Restore, which needs all connections closed.
#ifndef ROUNDHOUSE_SERVER_STORE_POWER_CUT_VFS_H_
#define ROUNDHOUSE_SERVER_STORE_POWER_CUT_VFS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/mutex.h"

struct sqlite3_vfs;

namespace roundhouse {

class PowerCutVfs {
 public:
  PowerCutVfs();
  ~PowerCutVfs();
  PowerCutVfs(const PowerCutVfs&) = delete;
  PowerCutVfs& operator=(const PowerCutVfs&) = delete;

  void CutAfter(int64_t changes);
  bool cut() const;
  // Changes there were.
  int64_t changes() const;
  // Everything is on the disk as it is; for files that come or go otherwise.
  void Settle();
  // Power is back; everything that the files hold now is on the disk.
  void Restore(std::mt19937_64* rng);

  // For the methods of the VFS.  False: there is no power.
  bool Write(const std::string& path, int64_t at, const std::string& bytes);
  bool Truncate(const std::string& path, int64_t size);
  bool Sync(const std::string& path);
  bool Remove(const std::string& path);

 private:
  struct Change {
    int64_t at = 0;                    // A truncation's size.
    std::optional<std::string> bytes;  // nullopt: a truncation
  };
  struct File {
    std::string synced;
    std::vector<Change> since;
  };

  bool Count() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  File& Of(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::unique_ptr<sqlite3_vfs> vfs_;
  mutable Mutex mutex_;
  std::map<std::string, File> files_ ABSL_GUARDED_BY(mutex_);
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t left_ ABSL_GUARDED_BY(mutex_) = INT64_MAX;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_POWER_CUT_VFS_H_
