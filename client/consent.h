// What a command asks before it deletes something.
#ifndef ROUNDHOUSE_CLIENT_CONSENT_H_
#define ROUNDHOUSE_CLIENT_CONSENT_H_

#include <string>

#include "client/exit_code.h"
#include "client/session.h"

namespace roundhouse::client {

// kOk: go on.  Without --yes (`yes`) whoever sits at the terminal is
// asked, and kCancelled is his no; kUsage where nobody sits there.  Both are
// told.
ExitCode AskBeforeDeleting(const std::string& command,
                           const std::string& question, bool yes,
                           Session* session);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_CONSENT_H_
