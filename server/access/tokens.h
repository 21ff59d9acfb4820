// Access tokens: what callers over the network show, kept as hashes in a table
// of the job store with a copy in memory, in which every call looks its own up.
//
// A token is a user's (accounts.h), has a name, and may do no more than its
// scope, whatever the user may.  Its text is told once, when it is made.
//
// Thread-safe.  Changes block for one commit; Find does not block.
#ifndef ROUNDHOUSE_SERVER_ACCESS_TOKENS_H_
#define ROUNDHOUSE_SERVER_ACCESS_TOKENS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/access/caller.h"
#include "server/store/store.h"

namespace roundhouse {

inline constexpr size_t kMaxTokensEach = 100;  // of a user, that work
inline constexpr size_t kMaxTokens = 20'000;   // with those that do not
inline constexpr absl::Duration kLongestTokenLife = absl::Hours(24 * 3650);
// How often last uses are written.
inline constexpr absl::Duration kLastUseInterval = absl::Minutes(1);
// A token that does not work any more is shown for so long.
inline constexpr absl::Duration kDeadTokensKept = absl::Hours(24 * 90);

struct TokenRecord {
  std::string id;    // "token-3f9c..."; no secret
  std::string user;  // whose it is
  std::string name;
  Role scope = Role::kViewer;  // the highest role that it may use
  absl::Time create_time;
  absl::Time expire_time = absl::InfiniteFuture();
  std::optional<absl::Time> last_use_time;
  std::optional<absl::Time> revoke_time;

  bool WorksAt(absl::Time now) const {
    return !revoke_time.has_value() && now < expire_time;
  }
};

struct NewToken {
  TokenRecord record;
  std::string text;  // the secret
};

class Tokens {
 public:
  // kDataLoss when a row is damaged.  `store` and `clock` outlive it.
  static absl::StatusOr<std::unique_ptr<Tokens>> Load(
      JobStore* store, const Clock& clock = SystemClock());
  // Writes the last uses.
  ~Tokens();
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;

  // `user` is there.  kInvalidArgument with the field: a name that is none or
  // that another one of the user has, a scope, a time that is past or too far
  // away; kResourceExhausted.
  absl::StatusOr<NewToken> Create(
      const std::string& user, const std::string& name, Role scope,
      absl::Time expire_time = absl::InfiniteFuture());
  // All, or of one user; by user and name, those that work first.
  std::vector<TokenRecord> List(const std::string& user = "") const;
  // One of `user`'s, by its id, or its name while it works; "": anybody's, by
  // its id.  kNotFound with the field.
  absl::StatusOr<TokenRecord> Get(const std::string& user,
                                  const std::string& token) const;
  // The same again changes nothing.  kNotFound.
  absl::StatusOr<TokenRecord> Revoke(const std::string& id);
  // All that the user has.
  absl::Status RevokeAllOf(const std::string& user);

  // The token of this text, and notes that it was used.  One answer for those
  // that nobody knows, that were revoked and that have expired.
  // kUnauthenticated.
  absl::StatusOr<TokenRecord> Find(absl::string_view text);
  // The token of this text, whether or not it works; not as a use of it.
  std::optional<TokenRecord> Known(absl::string_view text) const;
  // The token of `id` if it works now.  kUnauthenticated.
  absl::StatusOr<TokenRecord> Working(const std::string& id) const;
  // Another one after each token that was revoked or has expired.
  uint64_t generation() const;
  // Writes when tokens were last used; every kLastUseInterval by itself.
  absl::Status WriteLastUses();

 private:
  struct Entry {
    TokenRecord record;
    std::string hash;      // hexadecimal
    bool unsaved = false;  // the last use
  };
  using Entries = std::map<std::string, Entry>;  // by id

  Tokens(JobStore* store, const Clock& clock) : store_(store), clock_(clock) {}
  absl::Status Read();
  absl::Status CheckNew(const TokenRecord& record) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StoreRevoked(const std::vector<std::string>& ids, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  void FindNextExpiry() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Loop();

  JobStore* const store_;
  const Clock& clock_;
  Mutex change_mutex_;  // one change at a time
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(change_mutex_);
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> by_hash_ ABSL_GUARDED_BY(mutex_);  // ids
  mutable absl::Time next_expiry_ ABSL_GUARDED_BY(mutex_) =
      absl::InfiniteFuture();
  mutable uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// "read" for viewers, "submit" for members, "admin".
const char* ScopeName(Role scope);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_TOKENS_H_
