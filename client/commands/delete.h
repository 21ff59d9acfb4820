// roundhouse delete: a job that has ended goes, for good.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_DELETE_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_DELETE_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeDeleteCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_DELETE_H_
