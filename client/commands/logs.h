// roundhouse logs: a job's log, and why it failed.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_LOGS_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_LOGS_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeLogsCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_LOGS_H_
