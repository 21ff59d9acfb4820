// roundhouse get: one job in full.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_GET_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_GET_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeGetCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_GET_H_
