// roundhouse watch: progress of one job, or the changes of all.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_WATCH_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_WATCH_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeWatchCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_WATCH_H_
