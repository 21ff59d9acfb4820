// The client's whole command line: finds the command, parses its flags, runs
// it.  main.cc and the tests call nothing else.
#ifndef ROUNDHOUSE_CLIENT_RUN_H_
#define ROUNDHOUSE_CLIENT_RUN_H_

#include <string>
#include <vector>

#include "client/environment.h"
#include "client/exit_code.h"

namespace roundhouse::client {

// `args` without the program's name.  Blocking; runs on the caller's thread.
// kError too when standard output can't be written.
ExitCode RunClient(const std::vector<std::string>& args,
                   Environment* environment);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_RUN_H_
