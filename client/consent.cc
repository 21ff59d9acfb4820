#include "client/consent.h"

#include <optional>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace roundhouse::client {

ExitCode AskBeforeDeleting(const std::string& command,
                           const std::string& question, bool yes,
                           Session* session) {
  if (yes) return ExitCode::kOk;
  const Environment& environment = session->environment();
  session->err() << std::flush;
  const std::optional<std::string> answer =
      environment.in_is_terminal
          ? environment.ask(absl::StrCat(question, " (y/N) "), Typed::kShown)
          : std::nullopt;
  if (!answer.has_value()) {
    session->err() << "roundhouse: " << command
                   << ": nobody is here to ask, and nothing was deleted; --yes "
                      "deletes without asking\n";
    return ExitCode::kUsage;
  }
  const std::string said =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(*answer));
  if (said == "y" || said == "yes") return ExitCode::kOk;
  session->err() << "Nothing was deleted.\n";
  return ExitCode::kCancelled;
}

}  // namespace roundhouse::client
