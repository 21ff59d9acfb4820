// roundhouse.v1.AccountService.
#ifndef ROUNDHOUSE_SERVER_API_ACCOUNT_SERVICE_H_
#define ROUNDHOUSE_SERVER_API_ACCOUNT_SERVICE_H_

#include "absl/status/statusor.h"
#include "proto/roundhouse/v1/account.grpc.pb.h"
#include "server/access/accounts.h"
#include "server/access/tokens.h"
#include "server/api/disk/disk_engine.h"
#include "server/calls/unary_call.h"
#include "server/limits/limit_table.h"

namespace roundhouse {

// kInvalidArgument with the field.  A uid that is not given is looked up in the
// system's own logins by whoever carries the change out.  Pure.
absl::StatusOr<UserChange> FromProto(const v1::SetUserRequest& request);
v1::User ToProto(const UserRecord& user);
// With its members.
v1::Project ToProto(const ProjectRecord& project, const AccountList& list);
v1::Token ToProto(const TokenRecord& token);

// Thread-safe.  Everything given must outlive the gRPC server.
class AccountService final : public v1::AccountService::CallbackService {
 public:
  AccountService(Accounts* accounts, Tokens* tokens, LimitTable* limits,
                 DiskEngine* disk, const JobStore* store, const CallDoor& door)
      : accounts_(accounts),
        tokens_(tokens),
        limits_(limits),
        disk_(disk),
        store_(store),
        door_(door) {}

  grpc::ServerUnaryReactor* WhoAmI(grpc::CallbackServerContext* context,
                                   const v1::WhoAmIRequest* request,
                                   v1::WhoAmIResponse* response) override;
  grpc::ServerUnaryReactor* ListUsers(grpc::CallbackServerContext* context,
                                      const v1::ListUsersRequest* request,
                                      v1::ListUsersResponse* response) override;
  grpc::ServerUnaryReactor* SetUser(grpc::CallbackServerContext* context,
                                    const v1::SetUserRequest* request,
                                    v1::User* response) override;
  grpc::ServerUnaryReactor* RemoveUser(grpc::CallbackServerContext* context,
                                       const v1::RemoveUserRequest* request,
                                       v1::User* response) override;
  grpc::ServerUnaryReactor* ListProjects(
      grpc::CallbackServerContext* context,
      const v1::ListProjectsRequest* request,
      v1::ListProjectsResponse* response) override;
  grpc::ServerUnaryReactor* AddProject(grpc::CallbackServerContext* context,
                                       const v1::AddProjectRequest* request,
                                       v1::Project* response) override;
  grpc::ServerUnaryReactor* RemoveProject(
      grpc::CallbackServerContext* context,
      const v1::RemoveProjectRequest* request,
      v1::RemoveProjectResponse* response) override;
  grpc::ServerUnaryReactor* SetLimit(grpc::CallbackServerContext* context,
                                     const v1::SetLimitRequest* request,
                                     v1::Limit* response) override;
  grpc::ServerUnaryReactor* RemoveLimit(
      grpc::CallbackServerContext* context,
      const v1::RemoveLimitRequest* request,
      v1::RemoveLimitResponse* response) override;
  grpc::ServerUnaryReactor* ListLimits(
      grpc::CallbackServerContext* context,
      const v1::ListLimitsRequest* request,
      v1::ListLimitsResponse* response) override;
  grpc::ServerUnaryReactor* GetUsage(grpc::CallbackServerContext* context,
                                     const v1::GetUsageRequest* request,
                                     v1::GetUsageResponse* response) override;
  grpc::ServerUnaryReactor* ListAudit(grpc::CallbackServerContext* context,
                                      const v1::ListAuditRequest* request,
                                      v1::ListAuditResponse* response) override;
  grpc::ServerUnaryReactor* ListTokens(
      grpc::CallbackServerContext* context,
      const v1::ListTokensRequest* request,
      v1::ListTokensResponse* response) override;
  grpc::ServerUnaryReactor* CreateToken(
      grpc::CallbackServerContext* context,
      const v1::CreateTokenRequest* request,
      v1::CreateTokenResponse* response) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context,
                                        const v1::RevokeTokenRequest* request,
                                        v1::Token* response) override;

 private:
  // Whether the caller is an admin when the change is made.
  MayChange AdminsOnly(const Caller& caller) const;
  absl::Status Set(const Caller& caller, const v1::SetUserRequest& request,
                   v1::User* response);
  absl::Status Remove(const Caller& caller,
                      const v1::RemoveUserRequest& request, v1::User* response);
  // What the project's people left stays theirs: whoever has a project of that
  // name later must not read it.
  absl::Status RemoveProject(const Caller& caller, const std::string& project);
  absl::Status Create(const Caller& caller,
                      const v1::CreateTokenRequest& request,
                      v1::CreateTokenResponse* response);
  absl::Status Revoke(const Caller& caller,
                      const v1::RevokeTokenRequest& request,
                      v1::Token* response);

  Accounts* const accounts_;
  Tokens* const tokens_;
  LimitTable* const limits_;
  DiskEngine* const disk_;
  const JobStore* const store_;
  const CallDoor door_;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_API_ACCOUNT_SERVICE_H_
