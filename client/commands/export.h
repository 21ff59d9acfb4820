// roundhouse export: an adapter, a full model, or both merged, as a new
// directory.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_EXPORT_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_EXPORT_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeExportCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_EXPORT_H_
