// `roundhouse dataset`: what a job would be trained on.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_DATASET_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_DATASET_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeDatasetCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_DATASET_H_
