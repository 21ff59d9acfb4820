// roundhouse audit: who did what on the server.
#ifndef ROUNDHOUSE_CLIENT_ACCOUNTS_AUDIT_H_
#define ROUNDHOUSE_CLIENT_ACCOUNTS_AUDIT_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeAuditCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ACCOUNTS_AUDIT_H_
