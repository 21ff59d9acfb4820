// roundhouse du: what lies on the server's disk, and for whom.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_DU_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_DU_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeDuCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_DU_H_
