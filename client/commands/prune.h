// roundhouse prune: old checkpoints of jobs that have ended go.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_PRUNE_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_PRUNE_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakePruneCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_PRUNE_H_
