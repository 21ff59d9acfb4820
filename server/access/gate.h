// Every call of the API goes through here before anything is done for it: who
// calls, whether the rules let him, and which job it is about.  Names of
// weights and data are not looked at here, but where they become paths
// (server/admission/weight_names.h).
//
// Who calls: over the daemon's socket, the user whose process is connected
// (server/door/peers.h).  Without accounts he may do everything.  With them,
// root and the daemon's own user are admins, and others what accounts.h says.
//
// Thread-safe.  Reads the store, so it may block for a disk.
#ifndef ROUNDHOUSE_SERVER_ACCESS_GATE_H_
#define ROUNDHOUSE_SERVER_ACCESS_GATE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/access/accounts.h"
#include "server/access/caller.h"
#include "server/access/rules.h"
#include "server/door/peers.h"
#include "server/store/store.h"

namespace roundhouse {

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
  Gate(const Peers* peers, const Accounts* accounts, const JobStore* store);

  // kUnauthenticated: nobody knows who calls; kPermissionDenied: it is not for
  // him, and what an admin would type where he has no account; kNotFound,
  // kInvalidArgument: the job that is named.
  absl::StatusOr<Entered> Enter(const grpc::ServerContextBase& context,
                                const google::protobuf::Message& request) const;
  absl::StatusOr<Entered> Enter(const Caller& caller,
                                const google::protobuf::Message& request) const;

  // Whether or not he is let in.
  Asker AskerOf(const grpc::ServerContextBase& context) const;

  // kPermissionDenied.
  absl::StatusOr<Caller> CallerOf(uid_t uid) const;
  absl::StatusOr<Caller> CallerIn(const AccountList& list, uid_t uid) const;
  // For what lasts, as streams do: whether the caller is still who he was when
  // accounts had another generation.  kUnavailable: he is somebody else now,
  // and calls again; kPermissionDenied: he is nobody.
  uint64_t generation() const { return accounts_->generation(); }
  absl::Status IsStill(const Caller& caller) const;

 private:
  absl::Status FindJob(const Rule& rule, const std::string& name,
                       Entered* entered) const;

  const Peers* const peers_;
  const Accounts* const accounts_;
  const JobStore* const store_;
};

// The project that a caller means by "": "default" where he has a role in it or
// is an admin, else the only one that he has.  kInvalidArgument with the field
// where he has several.
absl::StatusOr<std::string> ProjectMeant(const Caller& caller,
                                         const std::string& project);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_ACCESS_GATE_H_
