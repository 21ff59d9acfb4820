// Whether a caller may take more: what he uses, against the rows of the table.
//
// An error is kResourceExhausted and says which limit of whom, its value, what
// is used, and what an admin would type.  Admins are not asked here.
//
// Thread-safe.  What counts jobs or bytes reads the store.
#ifndef ROUNDHOUSE_SERVER_LIMITS_LIMIT_CHECK_H_
#define ROUNDHOUSE_SERVER_LIMITS_LIMIT_CHECK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/priority.h"
#include "server/access/caller.h"
#include "server/door/token_bucket.h"
#include "server/limits/limit_table.h"
#include "server/store/store.h"

namespace roundhouse {

// Users whose calls are counted; all of them are forgotten beyond that.
inline constexpr size_t kMaxCountedUsers = 4'096;

// Whose bytes or jobs are counted; "" is everybody's.
struct Counted {
  std::string owner;
  std::string project;
};

// A stream that counts.  Shared, since it only tells when the last owner goes;
// the LimitCheck outlives it.
using StreamTicket = std::shared_ptr<const void>;

class LimitCheck {
 public:
  // Bytes beside those of checkpoints, as uploads are; may read the database.
  using OtherBytes =
      std::function<absl::StatusOr<int64_t>(Database*, const Counted&)>;

  // What is used of a limit that this class does not count, at one moment;
  // nullopt: not known.
  using OtherUse = std::function<std::optional<int64_t>(Limit, const Counted&)>;

  // Both outlive it.
  LimitCheck(const LimitTable* table, const JobStore* store,
             const Clock& clock = SystemClock());

  // Before the first call.
  void SetOtherBytes(OtherBytes bytes) { other_bytes_ = std::move(bytes); }

  // `now` is asked for what is used then; it may block for a short while.
  void SetOtherUse(std::function<OtherUse()> now) {
    other_use_ = std::move(now);
  }

  // Lets no call in from now on: what waits for its turn when the server stops
  // is answered without being done.
  void Stop() { stopped_ = true; }

  // One call more; an admin's is not counted.  kUnavailable after Stop, for
  // everybody.
  absl::Status CheckCall(const Caller& caller);
  // One stream more, which counts until the ticket is gone.
  absl::StatusOr<StreamTicket> OpenStream(const Caller& caller);
  // Room for `bytes` more of what is kept: checkpoints, uploads.
  absl::Status CheckRoom(const Caller& caller, const std::string& project,
                         int64_t bytes) const;
  // For the transaction that adds a job: one more that has not ended, of
  // whoever has room left, and who may have urgent ones if it is.  The host
  // memory that it needs alone must be within host_bytes, of admins, too, for
  // else it would never start.
  using MayInsertJob =
      std::function<absl::Status(Database*, Priority, uint64_t host_bytes)>;
  MayInsertJob MayAddJob(const Caller& caller,
                         const std::string& project) const;
  // For the transaction that makes a job of the project urgent.
  MayWrite MayBeUrgent(const Caller& caller, const std::string& project) const;
  // One more of what `used` counts, of an owner or, of "", of all.
  absl::Status CheckCount(
      const Caller& caller, Limit limit,
      const std::function<int64_t(const std::string& owner)>& used) const;
  // A value that is not counted here, as unpacked_bytes; nullopt: none.
  std::optional<LimitRows::Found> OfCaller(const Caller& caller,
                                           Limit limit) const;
  // Whether anybody has a row of it.
  bool Has(Limit limit) const { return table_->rows()->Has(limit); }
  // The status that says so.
  static absl::Status Reached(const LimitRows::Found& limit, Limit name,
                              int64_t used, int64_t more);

  // What is used of limits that it does not count, now.
  OtherUse OthersUsed() const { return other_use_(); }
  // What is used now; nullopt: nothing that this class counts.
  absl::StatusOr<std::optional<int64_t>> Used(Limit limit,
                                              const Counted& counted) const;

 private:
  struct Bucket {
    int64_t per_second;
    TokenBucket calls;
  };

  // The rows that hold for one more of a thing that is counted.
  using HoldingRows = std::vector<std::pair<LimitRows::Found, Counted>>;
  HoldingRows Holding(const Caller& caller, const std::string& project,
                      Limit limit) const;
  static absl::Status CheckHost(const HoldingRows& holding, uint64_t bytes);
  static absl::Status CheckJobs(Database* db, Limit name,
                                const HoldingRows& holding);
  absl::Status CheckBytes(Database* db, const HoldingRows& holding,
                          int64_t bytes) const;
  void CloseStream(const std::string& owner);
  int64_t Streams(const Counted& counted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Take(const std::string& key, int64_t per_second)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const LimitTable* const table_;
  const JobStore* const store_;
  const Clock& clock_;
  OtherBytes other_bytes_ = [](Database*, const Counted&) { return 0; };
  std::function<OtherUse()> other_use_ = [] {
    return [](Limit, const Counted&) { return std::optional<int64_t>(); };
  };
  std::atomic<bool> stopped_ = false;
  mutable Mutex mutex_;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
  // How many are open now: by owner, and of all.
  std::map<std::string, int64_t> streams_ ABSL_GUARDED_BY(mutex_);
  int64_t all_streams_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LIMITS_LIMIT_CHECK_H_
