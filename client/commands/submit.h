// roundhouse submit: sends a job file and, with --wait, follows the job.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_SUBMIT_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_SUBMIT_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeSubmitCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_SUBMIT_H_
