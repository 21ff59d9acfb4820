// What users, projects and all together may take: the table `limits` of the job
// store, and a copy of it in memory.
//
// A row is a limit's name, its value, and a subject:
//
//   user:anna       this user
//   project:vision  all that is the project's, together
//   everybody       each user who has no row of his own
//   server          all users together
//
// Each limit that has a row for what is asked must hold; of a user's own row
// and everybody's, his own.  Without a row the named constants hold alone, and
// for admins always (but LimitInfo::for_admins).  Without accounts everybody is
// an admin.
//
// Thread-safe.  Changes block for one commit; readers take a snapshot.
#ifndef ROUNDHOUSE_SERVER_LIMITS_LIMIT_TABLE_H_
#define ROUNDHOUSE_SERVER_LIMITS_LIMIT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/access/accounts.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr size_t kMaxLimitRows = 100'000;
inline constexpr char kEverybody[] = "everybody";
inline constexpr char kServer[] = "server";

enum class Limit {
  kCallsPerSecond,
  kOpenStreams,
  kQueuedJobs,
  kDiskBytes,
  kBytesInFlight,
  kUnpackedBytes,
  kRunningJobs,
  kUrgentJobs,
  kShare,
  kLentDevices,
  kGpuHours,
  kHostBytes,
};
inline constexpr int kLimits = 12;

// Which subjects, beside users and everybody, a limit may have.
enum class LimitScope {
  kUsers,             // none
  kUsersAndServer,    // server
  kUsersAndProjects,  // server and projects
  kShares             // projects
};

struct LimitInfo {
  Limit limit;
  const char* name;
  LimitScope scope;
  // What each user has without a row; nullopt: no bound of his own.
  std::optional<int64_t> built_in;
  int64_t most;         // no row has more
  const char* meaning;  // "jobs that have not ended"
  // The constant holds whatever rows say; else a row counts in its place.
  bool always_holds = true;
  int64_t least = 0;        // no row has less
  bool for_admins = false;  // rows hold for them, too
};
// A share is no bound: it is the weight with which device time is shared, from
// 1 to this, and holds for admins, too.
inline constexpr int64_t kMostShare = 1'000;

absl::Span<const LimitInfo> LimitInfos();
const LimitInfo& InfoOf(Limit limit);

struct LimitSubject {
  std::string text;     // as in the table
  std::string user;     // of "user:NAME"
  std::string project;  // of "project:NAME"
};
// kInvalidArgument with the field `subject`.
absl::StatusOr<LimitSubject> ParseLimitSubject(const std::string& text);
// kInvalidArgument with the field `limit`.
absl::StatusOr<const LimitInfo*> FindLimit(const std::string& name);

// The rows at one moment.
struct LimitRows {
  std::map<std::pair<Limit, std::string>, int64_t> values;

  std::optional<int64_t> Of(const std::string& subject, Limit limit) const;
  // A user's: his own row, or everybody's; with the subject that has it.
  struct Found {
    std::string subject;
    int64_t value = 0;
  };
  std::optional<Found> OfUser(const std::string& user, Limit limit) const;
  // Whether any row has it.
  bool Has(Limit limit) const;
};

class LimitTable {
 public:
  // kDataLoss when a row is damaged.  `store` outlives it.
  static absl::StatusOr<std::unique_ptr<LimitTable>> Load(
      JobStore* store, const Clock& clock = SystemClock());

  std::shared_ptr<const LimitRows> rows() const;
  // Calls `changed` with the rows as they are, and after each change before it
  // is answered, one call at a time.  `changed` returns at once, and outlives
  // the table.
  void OnChange(std::function<void(const LimitRows&)> changed);

  // The same again changes nothing.  kInvalidArgument with the field (subject,
  // limit, value), kNotFound: a user or project that is not in `accounts`;
  // kResourceExhausted.
  absl::Status Set(const AccountList& accounts, const std::string& subject,
                   const std::string& limit, int64_t value);
  // kNotFound: there is no such row.
  absl::Status Remove(const std::string& subject, const std::string& limit);

 private:
  LimitTable(JobStore* store, const Clock& clock)
      : store_(store), clock_(clock) {}
  void Publish(std::shared_ptr<const LimitRows> rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);

  JobStore* const store_;
  const Clock& clock_;
  Mutex change_mutex_;  // one change at a time
  std::function<void(const LimitRows&)> changed_
      ABSL_GUARDED_BY(change_mutex_) = [](const LimitRows&) {};
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(change_mutex_);
  std::shared_ptr<const LimitRows> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_LIMITS_LIMIT_TABLE_H_
