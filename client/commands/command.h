// One command of the client: its name, flags, help and what it does.
//
// run.h makes one, lets it define its flags, parses and calls Run() once.
// Thread-compatible.
#ifndef ROUNDHOUSE_CLIENT_COMMANDS_COMMAND_H_
#define ROUNDHOUSE_CLIENT_COMMANDS_COMMAND_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/flags.h"
#include "client/exit_code.h"
#include "client/session.h"

namespace roundhouse::client {

struct CommandInfo {
  std::string name;
  // What follows the name: "JOB".
  std::string arguments;
  // One line.
  std::string summary;
  // Paragraphs for --help, 80 columns wide, or "".
  std::string details;
  size_t fewest_arguments = 0;
  size_t most_arguments = 0;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual const CommandInfo& info() const = 0;
  // The flags' targets are members.
  virtual void DefineFlags(FlagSet* flags) {}
  // After parsing; kInvalidArgument is a usage error.
  virtual absl::Status CheckFlags() { return absl::OkStatus(); }
  // After it, of as many `arguments` as info() allows: likewise.
  virtual absl::Status CheckArguments(
      const std::vector<std::string>& arguments) const {
    return absl::OkStatus();
  }
  // REQUIRES: `arguments` passed CheckArguments.
  virtual ExitCode Run(const std::vector<std::string>& arguments,
                       Session* session) = 0;
};

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_COMMANDS_COMMAND_H_
