// roundhouse plan: what training would come to on devices that need not exist.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_PLAN_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_PLAN_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakePlanCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_PLAN_H_
