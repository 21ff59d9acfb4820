// roundhouse pause, resume, finish and cancel: one request, one new state.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_CHANGE_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_CHANGE_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakePauseCommand();
std::unique_ptr<Command> MakeResumeCommand();
std::unique_ptr<Command> MakeFinishCommand();
std::unique_ptr<Command> MakeCancelCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_CHANGE_H_
