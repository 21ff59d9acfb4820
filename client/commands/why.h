// roundhouse why: why a job waits or is slow.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_WHY_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_WHY_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeWhyCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_WHY_H_
