// roundhouse user, project and whoami: who may use the server.
#ifndef ROUNDHOUSE_CLIENT_ACCOUNTS_ACCOUNT_H_
#define ROUNDHOUSE_CLIENT_ACCOUNTS_ACCOUNT_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeUserCommand();
std::unique_ptr<Command> MakeProjectCommand();
std::unique_ptr<Command> MakeWhoAmICommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ACCOUNTS_ACCOUNT_H_
