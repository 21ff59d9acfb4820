// Who used what of the server: the device time that the dispatcher charges, and
// host memory times the time that jobs held it.
//
//   UsageBook book(loop, store);
//   book.Load();                             // before anything is charged
//   book.AddDevice({.owner = owner, .job = id, .device_ns = ns});
//   book.Tick(holders);                      // once a second
//   book.Flush();                            // as a job ends, and at the end
//
// It is written to the store (usage_table.h) once a minute, and when Flush is
// called, beside the loop and one write at a time: a daemon that is killed
// loses a minute at most.  What the store refused is written with the next one.
//
// Runs on the event loop's thread.
#ifndef ROUNDHOUSE_SERVER_USAGE_USAGE_BOOK_H_
#define ROUNDHOUSE_SERVER_USAGE_USAGE_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/dispatch/dispatcher.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/store/store.h"
#include "server/usage/recent_use.h"
#include "server/usage/usage_table.h"

namespace roundhouse {

inline constexpr absl::Duration kUsageInterval = absl::Minutes(1);
// Rows that are not written yet; beyond it the oldest are lost, which the log
// says.  A store that takes nothing starts no jobs either.
inline constexpr size_t kMaxWaitingUsage = 20'000;

// A job with memory in the arena.  A base that jobs share counts for each.
struct HostHolder {
  JobOwner owner;
  JobId job{};
  uint64_t bytes = 0;
};

class UsageBook {
 public:
  // Both outlive it.
  UsageBook(EventLoop& loop, JobStore& store);
  UsageBook(const UsageBook&) = delete;
  UsageBook& operator=(const UsageBook&) = delete;

  // What earlier daemons wrote.  Blocks for a read of it.
  absl::Status Load();

  void AddDevice(const DeviceCharge& charge);
  // They held their bytes since the last call.  Writes when it is time to.
  // True: somebody has used less in the last seven days than before the call.
  bool Tick(const std::vector<HostHolder>& holders);
  // Writes what is not written.
  void Flush();

  // What was added and loaded.
  const RecentUse& recent() const { return recent_; }

 private:
  struct Used {
    int64_t device_ns = 0;
    double host_mib_seconds = 0;
    std::optional<UsageAmount> written;  // what the store has

    UsageAmount amount() const;
  };

  Used& Now(const JobOwner& owner, std::optional<JobId> job);
  void OnWritten(const UsageRows& rows, const absl::Status& status);
  void Forget();

  EventLoop& loop_;
  JobStore& store_;
  int64_t hour_ = 0;  // of the last entry
  int64_t part_ = 1;
  std::map<UsageKey, Used> used_;
  RecentUse recent_;
  int64_t ticked_ns_ = 0;
  int64_t flushed_ns_ = 0;
  int64_t dropped_hour_ = 0;  // when the store was rid of old rows
  bool flush_again_ = false;  // after the write that is under way
  Background background_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_USAGE_USAGE_BOOK_H_
