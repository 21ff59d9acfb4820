// roundhouse model: the models of the server.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_MODEL_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_MODEL_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeModelCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_MODEL_H_
