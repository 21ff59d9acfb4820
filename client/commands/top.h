// roundhouse top: devices, bubbles by cause and jobs, now.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_TOP_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_TOP_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeTopCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_TOP_H_
