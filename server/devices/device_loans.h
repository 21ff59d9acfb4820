// Which devices are out of use, by whose word: lent to somebody for a time, or
// fenced by an admin.  The table `device_loans` of the job store, so that a
// daemon that starts again leaves them alone, and a copy of it in memory.
// Beside them are those that are left to others' processes (device_yields.h),
// which are in memory only.  Both may hold one device.
//
// A device's row is found by the GPU's uuid (of the second device on a GPU
// UUID#2), or "cpu-INDEX"; rows of GPUs that the daemon does not have now stay.
// A loan whose time is over is none.
//
// Thread-safe.  Changes block for one commit; readers take a copy.
#ifndef ROUNDHOUSE_SERVER_DEVICES_DEVICE_LOANS_H_
#define ROUNDHOUSE_SERVER_DEVICES_DEVICE_LOANS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/wire/gpu_report.h"
#include "server/access/caller.h"
#include "server/limits/limit_check.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr size_t kMaxLoanNoteBytes = 200;
// What a member may lend a device for at a time, from the loan's beginning.
inline constexpr absl::Duration kLongestMemberLoan = absl::Hours(8);

struct DeviceLoan {
  // The numbers are stored: never renumber.  kYielded never is.
  enum class Kind { kLent = 1, kFenced = 2, kYielded = 3 };
  // A process of another that is on the GPU.
  struct Process {
    uint32_t pid = 0;
    std::string name;  // "": not known

    bool operator==(const Process&) const = default;
  };
  Kind kind = Kind::kLent;
  // Who has it, or fenced it (Caller::owner); of kYielded "uid:1000", or "".
  std::string owner;
  std::string note;  // what for; may be ""
  absl::Time since;
  absl::Time until = absl::InfiniteFuture();
  Process process;  // of kYielded

  bool operator==(const DeviceLoan&) const = default;
};

// "device 3 is lent to anna until 2026-11-27 18:00 UTC (demo)".
std::string TextOf(int device, const DeviceLoan& loan);
// "python3 (process 4711 of uid:1000)", of one that is yielded.
std::string ProcessText(const DeviceLoan& loan);

// By index; none: the device is used.
using DeviceLoanList = std::vector<std::optional<DeviceLoan>>;

class DeviceLoans {
 public:
  // One row key a device.  kDataLoss when a row is damaged.  `store` outlives
  // it.
  static absl::StatusOr<std::unique_ptr<DeviceLoans>> Load(
      JobStore* store, std::vector<std::string> keys,
      const Clock& clock = SystemClock());
  // The uuids of GPUs with a device that is out now.
  static absl::StatusOr<std::set<std::string>> GpusOut(
      JobStore* store, const Clock& clock = SystemClock());
  static std::vector<std::string> KeysOf(const std::vector<wire::Gpu>& gpus,
                                         int device_count);

  int device_count() const { return static_cast<int>(keys_.size()); }
  // Who has each device, without those whose time is over.  One that is lent or
  // fenced, and left to a process too, is the former here.
  DeviceLoanList Now() const;
  // How many are lent to the owner now; of "" to anybody.
  int64_t LentTo(const std::string& owner) const;
  // Without those that are left to processes.
  DeviceLoanList Stored() const;
  // Calls `changed` with Stored() as it is, and after each change before it is
  // answered, one call at a time.  It returns at once, and outlives this.
  void OnChange(std::function<void(const DeviceLoanList&)> changed);
  // Which devices are left to processes from now on; does not block.
  void SetYields(const DeviceLoanList& yields);
  // Called where one of those is returned; as `changed`.
  void OnTakenBack(std::function<void(int device)> taken_back);

  // Errors of all: kNotFound with the field `name`, the device is none of the
  // daemon's; kFailedPrecondition where it is in another's hands.  Each answers
  // the loan as it is then, or was.

  // Also changes the end and the note of a loan of his own, which stay where he
  // says none.  `until` InfiniteFuture: as long as he may.  kInvalidArgument
  // with the field; kResourceExhausted by the limit lent_devices.
  absl::StatusOr<DeviceLoan> Lend(const Caller& caller,
                                  const LimitCheck& limits, int device,
                                  absl::Time until, const std::string& note);
  // By whoever has it, or an admin.  One that is left to a process is taken
  // back from it, and not left to the same again.
  absl::StatusOr<DeviceLoan> Return(const Caller& caller, int device);
  absl::StatusOr<DeviceLoan> Fence(const Caller& caller, int device,
                                   const std::string& note);
  absl::StatusOr<DeviceLoan> Unfence(int device);

 private:
  DeviceLoans(JobStore* store, std::vector<std::string> keys,
              const Clock& clock)
      : store_(store), keys_(std::move(keys)), clock_(clock) {}

  absl::Status CheckDevice(int device) const;
  bool IsOver(const DeviceLoan& loan) const {
    return loan.until <= clock_.WallTime();
  }
  // As Stored() has it.  Nullopt: none, or over.
  std::optional<DeviceLoan> Find(int device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  absl::Status CheckEnd(const Caller& caller, absl::Time since,
                        absl::Time* until) const;
  absl::Status Put(int device, const DeviceLoan& loan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  absl::Status Drop(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  absl::StatusOr<DeviceLoan> ReturnYielded(const Caller& caller, int device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  void Publish(int device, std::optional<DeviceLoan> loan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);

  JobStore* const store_;
  const std::vector<std::string> keys_;
  const Clock& clock_;
  Mutex change_mutex_;  // one change at a time
  std::function<void(const DeviceLoanList&)> changed_
      ABSL_GUARDED_BY(change_mutex_) = [](const DeviceLoanList&) {};
  std::function<void(int)> taken_back_ ABSL_GUARDED_BY(change_mutex_) =
      [](int) {};
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(change_mutex_);
  DeviceLoanList loans_ ABSL_GUARDED_BY(mutex_);
  DeviceLoanList yields_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DEVICES_DEVICE_LOANS_H_
