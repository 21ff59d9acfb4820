// Every call of the API goes through here before anything is done for it: who
// calls, whether the rules let him, and which job it is about.  Names of
// weights and data are not looked at here, but where they become paths
// (server/admission/weight_names.h).
//
// Who calls: over the daemon's socket, the user whose process is connected
// (server/door/peers.h).  Without accounts he may do everything.  With them,
// root and the daemon's own user are admins, and others what accounts.h says.
// Over the network, the user whose token the call shows (tokens.h), and nobody
// without accounts; on the socket tokens are not looked at.
//
// Thread-safe.  Reads the store, so it may block for a disk.
#ifndef ROUNDHOUSE_SERVER_ACCESS_GATE_H_
#define ROUNDHOUSE_SERVER_ACCESS_GATE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/access/accounts.h"
#include "server/access/caller.h"
#include "server/access/rules.h"
#include "server/access/tokens.h"
#include "server/door/peers.h"
#include "server/door/token_bucket.h"
#include "server/store/store.h"

namespace roundhouse {

// Calls of an address that are refused in a second for their tokens; what is
// beyond is told to come later.  One with a token that works is never refused.
inline constexpr double kRefusedTokens = 10;
inline constexpr size_t kMaxRefusedAddresses = 4096;

// A call that was let in.
struct Entered {
  Caller caller;
  // The job that the request names, as it was then.
  std::optional<JobRecord> job;
  // The one that the request is for, where its rule is Subject::kProject.
  std::string project;

  // Whether `job` may be seen whole, or no more than its outline.
  bool SeesAllOf(const JobRecord& record) const {
    return caller.RoleIn(record.project) >= Role::kViewer;
  }
};

// Who makes a call, for what is written of it; "": not known, or none.
struct Asker {
  std::string principal;
  std::string user;
  std::string token;  // its id
  std::string peer;   // from where
};

class Gate {
 public:
  // Everything outlives it.
  Gate(Peers* peers, const Accounts* accounts, Tokens* tokens,
       const JobStore* store, const Clock& clock = SystemClock());

  // kUnauthenticated: nobody knows who calls; kPermissionDenied: it is not for
  // him, and what an admin would type where he has no account; kNotFound,
  // kInvalidArgument: the job that is named.
  absl::StatusOr<Entered> Enter(const Caller& caller,
                                const google::protobuf::Message& request) const;

  // Whether or not he is let in.
  Asker AskerOf(const grpc::ServerContextBase& context) const;

  // kPermissionDenied: a user without an account.  kUnauthenticated: no token
  // that works; kResourceExhausted: too many such calls of his address.
  absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context) const;
  absl::StatusOr<Caller> CallerOf(uid_t uid) const;
  // `authorization` is what the call shows: "Bearer rh_..."; "": nothing.
  absl::StatusOr<Caller> CallerFrom(const Peer& peer,
                                    absl::string_view authorization) const;
  // From where it comes, in a few words (Peers::AddressOf).
  std::string AddressOf(const grpc::ServerContextBase& context) const {
    return peers_->AddressOf(context);
  }
  // Who the caller is by the accounts and tokens of now, or by `list`; the
  // errors are the same.
  absl::StatusOr<Caller> Now(const Caller& caller) const;
  absl::StatusOr<Caller> CallerIn(const AccountList& list,
                                  const Caller& caller) const;
  // For what lasts, as streams do: whether the caller is still who he was when
  // accounts had another generation.  kUnavailable: he is somebody else now,
  // and calls again; kPermissionDenied: he is nobody.
  uint64_t generation() const {
    return accounts_->generation() + tokens_->generation();
  }
  absl::Status IsStill(const Caller& caller) const;

 private:
  absl::Status FindJob(const Rule& rule, const std::string& name,
                       Entered* entered) const;
  absl::StatusOr<Caller> UserIn(const AccountList& list, uid_t uid) const;
  absl::StatusOr<Caller> HolderIn(const AccountList& list,
                                  const TokenRecord& token) const;
  // What a call is told that showed no token that works.
  absl::Status RefuseToken(const Peer& peer, const absl::Status& why) const;

  Peers* const peers_;
  const Accounts* const accounts_;
  Tokens* const tokens_;
  const JobStore* const store_;
  const Clock& clock_;
  mutable Mutex mutex_;
  // Addresses whose calls were refused lately.
  mutable std::map<Peer, TokenBucket> refusals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_GATE_H_
