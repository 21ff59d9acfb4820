// Runs a program to its end, within a limit, and keeps its last lines.
#ifndef ROUNDHOUSE_SERVER_DOCTOR_PROGRAM_RUN_H_
#define ROUNDHOUSE_SERVER_DOCTOR_PROGRAM_RUN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace roundhouse {

struct ProgramEnd {
  // Not OK: it could not be started, or was killed at its limit.
  absl::Status status;
  int exit_status = 0;      // -1: a signal ended it
  std::string last_line;    // of its stderr
  std::string last_output;  // line of its stdout
};

// Blocks the calling thread, which needs no loop.  The program gets an empty
// environment but for LANG, and no descriptors.
ProgramEnd RunToEnd(const std::string& program,
                    const std::vector<std::string>& arguments,
                    absl::Duration limit);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DOCTOR_PROGRAM_RUN_H_
