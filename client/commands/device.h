// roundhouse device: the devices, where their time went, and who has them.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_DEVICE_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_DEVICE_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeDeviceCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_DEVICE_H_
