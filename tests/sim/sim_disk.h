// The disk of a daemon in virtual time, which may be full.  What this process
// writes for jobs fails then, beside SQLite's files and what SimWorkers write
// (SimWorkersOptions::disk_full).
//
// Thread-compatible.  One at a time in a process (ArmFileFaults).
#ifndef ROUNDHOUSE_TESTS_SIM_SIM_DISK_H_
#define ROUNDHOUSE_TESTS_SIM_SIM_DISK_H_

#include <functional>

#include "base/files/file_site.h"

namespace roundhouse::sim {

enum class DiskState {
  kRoomy,
  kFull,   // no block is free
  kQuota,  // blocks are free, and writes fail all the same
};

class SimDisk {
 public:
  ~SimDisk() { Set(DiskState::kRoomy); }

  // Where it is not roomy, what is written at the sites that `fails` says so of
  // fails: a disk that fills up takes small writes longer than large ones.
  void Set(
      DiskState state, const std::function<bool(FileSite)>& fails =
                           [](FileSite) { return true; });
  DiskState state() const { return state_; }
  bool full() const { return state_ != DiskState::kRoomy; }

 private:
  DiskState state_ = DiskState::kRoomy;
};

}  // namespace roundhouse::sim

#endif  // ROUNDHOUSE_TESTS_SIM_SIM_DISK_H_
