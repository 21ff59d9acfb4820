#include "server/door/peers.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"

namespace roundhouse {
namespace {

constexpr size_t kMaxUsersKept = 1024;

}  // namespace

absl::Status Peers::Enter(uid_t uid, absl::Time now) {
  MutexLock lock(mutex_);
  if (connections_ >= limits_.connections) {
    return absl::ResourceExhaustedError(absl::StrCat(
        limits_.connections, " connections are open, the most in all"));
  }
  const int most =
      IsTrusted(uid) ? limits_.connections_admin : limits_.connections_each;
  const auto found = users_.find(uid);
  if (found != users_.end() && found->second.connections >= most) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "user ", uid, " has ", most, " connections open, the most of a user"));
  }
  const auto user =
      users_.emplace(uid, User{.calls = TokenBucket(limits_.user_calls, now)});
  ++user.first->second.connections;
  ++connections_;
  return absl::OkStatus();
}

void Peers::Leave(uid_t uid) {
  MutexLock lock(mutex_);
  const auto user = users_.find(uid);
  ROUNDHOUSE_CHECK(user != users_.end());
  --connections_;
  // A user who comes back has no more calls than before.
  if (--user->second.connections == 0 && users_.size() > kMaxUsersKept) {
    users_.erase(user);
  }
}

void Peers::Note(int fd, uid_t uid, uint64_t connection) {
  MutexLock lock(mutex_);
  noted_[fd] = {.uid = uid, .connection = connection};
}

void Peers::Forget(int fd, uint64_t connection) {
  MutexLock lock(mutex_);
  const auto found = noted_.find(fd);
  if (found == noted_.end() || found->second.connection != connection) return;
  noted_.erase(found);
}

bool Peers::MayBeginCall(uid_t uid, absl::Time now) {
  MutexLock lock(mutex_);
  const auto user = users_.find(uid);
  return user != users_.end() && user->second.calls.Take(now);
}

bool Peers::AddUnfinished(uid_t uid, uint64_t bytes) {
  const uint64_t most =
      std::min(limits_.user_unfinished_bytes,
               most_unfinished_(uid).value_or(limits_.user_unfinished_bytes));
  MutexLock lock(mutex_);
  const auto user = users_.find(uid);
  if (user == users_.end()) return false;
  const uint64_t sum = user->second.unfinished_bytes + bytes;
  if (sum > most) return false;
  user->second.unfinished_bytes = sum;
  return true;
}

void Peers::TakeBackUnfinished(uid_t uid, uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto user = users_.find(uid);
  ROUNDHOUSE_CHECK(user != users_.end() &&
                   user->second.unfinished_bytes >= bytes);
  user->second.unfinished_bytes -= bytes;
}

absl::StatusOr<uid_t> Peers::UidOf(absl::string_view peer) const {
  int fd = -1;
  if (absl::ConsumePrefix(&peer, "fd:") && absl::SimpleAtoi(peer, &fd)) {
    MutexLock lock(mutex_);
    const auto found = noted_.find(fd);
    if (found != noted_.end()) return found->second.uid;
  }
  return absl::UnauthenticatedError("it is not known whose connection this is");
}

absl::StatusOr<uid_t> Peers::UidOf(
    const grpc::ServerContextBase& context) const {
  return UidOf(context.peer());
}

std::string Peers::AddressOf(const grpc::ServerContextBase& context) const {
  return UidOf(context).ok() ? "unix" : "unknown";
}

int Peers::connections() const {
  MutexLock lock(mutex_);
  return connections_;
}

bool IsTrusted(uid_t uid) { return uid == 0 || uid == geteuid(); }

std::string PrincipalOf(uid_t uid) { return absl::StrCat("uid:", uid); }

}  // namespace roundhouse
