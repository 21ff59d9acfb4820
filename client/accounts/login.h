// roundhouse login and logout: which server over the network commands go to.
#ifndef ROUNDHOUSE_CLIENT_ACCOUNTS_LOGIN_H_
#define ROUNDHOUSE_CLIENT_ACCOUNTS_LOGIN_H_

#include <memory>

#include "client/commands/command.h"

namespace roundhouse::client {

std::unique_ptr<Command> MakeLoginCommand();
std::unique_ptr<Command> MakeLogoutCommand();

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ACCOUNTS_LOGIN_H_
