// roundhouse limit: what users and projects may take.
#ifndef ROUNDHOUSE_CLIENT_ACCOUNTS_LIMIT_H_
#define ROUNDHOUSE_CLIENT_ACCOUNTS_LIMIT_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeLimitCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ACCOUNTS_LIMIT_H_
