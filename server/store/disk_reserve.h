// Some MB of disk that are held for the job store: a preallocated file in the
// state directory, which is given up when a full disk refuses what a job must
// have stored, and made anew when there is room.
//
// Thread-safe; Fill and GiveUp block on the disk for a moment.
#ifndef ROUNDHOUSE_SERVER_STORE_DISK_RESERVE_H_
#define ROUNDHOUSE_SERVER_STORE_DISK_RESERVE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

// The store's log has 4 MiB at most before it is written back.
inline constexpr uint64_t kDiskReserveBytes = uint64_t{8} << 20;

class DiskReserve {
 public:
  // The one of this state directory.
  explicit DiskReserve(const std::string& state_dir);

  // Makes the file where it is not whole; at once when it is held.
  // RESOURCE_EXHAUSTED naming the file: it would not leave as much free again.
  absl::Status Fill();
  // Whether it was there: it may be worth trying again what the disk refused.
  bool GiveUp();
  // False: it was given up, or never made, for the disk is full.
  bool held() const { return held_; }

 private:
  const std::string state_dir_;
  const std::string path_;
  std::atomic<bool> held_{false};
};

// Bytes that the daemon may still write where `path` is.
absl::StatusOr<uint64_t> FreeDiskBytes(const std::string& path);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_STORE_DISK_RESERVE_H_
