// roundhouse doctor: whether client, connection and server are well, and what
// to do where they are not.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_DOCTOR_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_DOCTOR_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeDoctorCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_DOCTOR_H_
