#include "client/accounts/named_things.h"

#include <algorithm>

#include "base/nearest_name.h"

namespace roundhouse::client {

absl::Status NamedThingsCommand::CheckArguments(
    const std::vector<std::string>& arguments) const {
  const std::string& verb = arguments[0];
  const bool named = arguments.size() > 1;
  const std::vector<std::string> verbs = {"add", "list", "show", "remove"};
  if (std::find(verbs.begin(), verbs.end(), verb) == verbs.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", verb, "\" is none of add, list, show, remove",
                     DidYouMean(verb, verbs)));
  }
  if (verb == "list" && named) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"",
                                                   arguments[1], "\"; show ",
                                                   arguments[1], " shows one"));
  }
  if (verb != "list" && !named) {
    return absl::InvalidArgumentError(
        absl::StrCat(verb, " needs the name of a ", info().name));
  }
  return CheckVerb(verb);
}

ExitCode NamedThingsCommand::Run(const std::vector<std::string>& arguments,
                                 Session* session) {
  const std::string& verb = arguments[0];
  const std::string name = arguments.size() > 1 ? arguments[1] : "";
  if (verb == "add") return Add(name, session);
  if (verb == "remove") return Remove(name, session);
  return List(name, session);
}

}  // namespace roundhouse::client
