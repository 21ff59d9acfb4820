// roundhouse trace: a running job's next steps as a timeline in a file.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_TRACE_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_TRACE_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeTraceCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_TRACE_H_
