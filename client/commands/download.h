// roundhouse download.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_DOWNLOAD_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_DOWNLOAD_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeDownloadCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_DOWNLOAD_H_
