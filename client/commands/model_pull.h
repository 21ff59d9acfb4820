// roundhouse model pull: a model from the server's hub.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_MODEL_PULL_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_MODEL_PULL_H_

#include <string>

#include "client/exit_code.h"
#include "client/session.h"

namespace roundhouse::client {

struct PullWish {
  std::string model;    // "ORG/NAME[@REVISION]"
  std::string name;     // of the upload; "": the server's choice
  std::string project;  // "": the server's choice
};

// Shows progress until the model is there, and says how a job file names it.
// A connection that breaks is made again.  Blocking; on Ctrl-C it says how to
// go on, kDetached.
ExitCode PullModel(const PullWish& wish, Session* session);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_MODEL_PULL_H_
