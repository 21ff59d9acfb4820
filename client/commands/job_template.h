// roundhouse job-template: a commented job file to start from.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_JOB_TEMPLATE_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_JOB_TEMPLATE_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

// Needs no server.
std::unique_ptr<Command> MakeJobTemplateCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_JOB_TEMPLATE_H_
