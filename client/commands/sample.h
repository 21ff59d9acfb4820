// `roundhouse sample`: what a job's weights say.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_SAMPLE_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_SAMPLE_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeSampleCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_SAMPLE_H_
