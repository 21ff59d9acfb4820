// roundhouse list: the jobs, newest first.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_LIST_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_LIST_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeListCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_LIST_H_
