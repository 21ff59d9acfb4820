// Users, projects and who is what in which: three tables of the job store, and
// a copy of them in memory, which every call is checked against.
//
// Until the first user is added there are no accounts, and whoever can open the
// socket may do everything (caller.h).  A user who was removed keeps his name:
// his jobs are still his, and nobody else may come to own them.
//
// Thread-safe.  Changes block for one commit; readers take a snapshot.
#ifndef ROUNDHOUSE_SERVER_ACCESS_ACCOUNTS_H_
#define ROUNDHOUSE_SERVER_ACCESS_ACCOUNTS_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/access/caller.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr size_t kMaxUsers = 10'000;  // removed ones too
inline constexpr size_t kMaxProjects = 1'000;
inline constexpr size_t kMaxMembershipsEach = 100;  // of a user
inline constexpr size_t kMaxAccountNameBytes = 32;

struct UserRecord {
  std::string name;
  std::optional<uid_t> uid;  // who he is on the server's own socket
  bool admin = false;
  absl::Time create_time;
  std::optional<absl::Time> remove_time;
  std::map<std::string, Role> projects;  // without an admin's
};

struct ProjectRecord {
  std::string name;
  absl::Time create_time;
};

// All accounts at one moment.
struct AccountList {
  std::map<std::string, UserRecord> users;  // removed ones too
  std::map<std::string, ProjectRecord> projects;
  bool had_users = false;  // as the store's mark says, which may have lost them

  // Whether there are accounts: a user was added once.
  bool in_use() const { return had_users || !users.empty(); }
  // nullptr: nobody, or he was removed.
  const UserRecord* User(const std::string& name) const;
  const UserRecord* UserOf(uid_t uid) const;
};

// What a user is from now on.  kAdmin is of the whole server; any other role is
// in `project` and ends being an admin.
struct UserChange {
  std::string name;
  std::optional<uid_t> uid;  // nullopt: as it was
  Role role = Role::kMember;
  std::string project = kDefaultProject;
  bool restore = false;  // one who was removed
};

// Asked once no other change can come between: whether this one may be made.
using MayChange = std::function<absl::Status(const AccountList&)>;

class Accounts {
 public:
  // kDataLoss when a row is damaged.  `store` outlives it; `clock` says when
  // changes were made.
  static absl::StatusOr<std::unique_ptr<Accounts>> Load(
      JobStore* store, const Clock& clock = SystemClock());

  std::shared_ptr<const AccountList> list() const;
  // Another one after each change of list().
  uint64_t generation() const { return generation_; }

  // All changes return the error of `may`, if it has one.
  //
  // A new user, or one with a role more, another role, another uid.  Jobs of
  // before that are his uid's are the user's from then on.  The same again
  // changes nothing.  kInvalidArgument with the field: a name that is
  // none, a uid that somebody has, a name that was removed; kNotFound: the
  // project; kResourceExhausted.
  absl::StatusOr<UserRecord> SetUser(const UserChange& change,
                                     const MayChange& may = AnyChange);
  // The user's role in `project`, or ("") the user.  kNotFound.
  absl::StatusOr<UserRecord> RemoveUser(const std::string& name,
                                        const std::string& project,
                                        const MayChange& may = AnyChange);
  // The same again changes nothing.  kInvalidArgument, kResourceExhausted.
  absl::StatusOr<ProjectRecord> AddProject(const std::string& name,
                                           const MayChange& may = AnyChange);
  // kNotFound; kFailedPrecondition: it has jobs or uploads, or is "default".
  absl::Status RemoveProject(const std::string& name,
                             const MayChange& may = AnyChange);

 private:
  Accounts(JobStore* store, const Clock& clock)
      : store_(store), clock_(clock) {}
  static absl::Status AnyChange(const AccountList&) { return absl::OkStatus(); }
  // What was committed is what is seen, whether or not it can be read again.
  void Publish(std::shared_ptr<const AccountList> list)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  absl::Status CheckChange(const AccountList& list,
                           const UserChange& change) const;

  JobStore* const store_;
  const Clock& clock_;
  Mutex change_mutex_;  // one change at a time
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(change_mutex_);
  std::shared_ptr<const AccountList> list_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> generation_ = 0;
};

// kInvalidArgument with the field unless `name` is one: small letters, digits,
// '-', '_' and '.', a letter first, at most kMaxAccountNameBytes; not "local",
// which the store has for jobs whose makers nobody knows.
absl::Status CheckAccountName(const std::string& field,
                              const std::string& name);

// The project that a caller means by "": "default" where he has a role in it or
// is an admin, else the only one that he has.  kInvalidArgument with the field
// where he has several.
absl::StatusOr<std::string> ProjectMeant(const Caller& caller,
                                         const std::string& project);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_ACCOUNTS_H_
