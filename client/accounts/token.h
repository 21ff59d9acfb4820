// roundhouse token: what one shows to call over the network.
#ifndef ROUNDHOUSE_CLIENT_ACCOUNTS_TOKEN_H_
#define ROUNDHOUSE_CLIENT_ACCOUNTS_TOKEN_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeTokenCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ACCOUNTS_TOKEN_H_
