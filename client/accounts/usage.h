// roundhouse usage: what users, projects and jobs had of the server.
#ifndef ROUNDHOUSE_CLIENT_ACCOUNTS_USAGE_H_
#define ROUNDHOUSE_CLIENT_ACCOUNTS_USAGE_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeUsageCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ACCOUNTS_USAGE_H_
