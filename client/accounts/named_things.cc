#include "client/accounts/named_things.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/nearest_name.h"

namespace roundhouse::client {
namespace {

bool Has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

absl::Status NamedThingsCommand::CheckArguments(
    const std::vector<std::string>& arguments) const {
  const std::string& verb = arguments[0];
  const bool named = arguments.size() > 1;
  const std::vector<std::string> others = OtherVerbs();
  std::vector<std::string> verbs = {"add", "list", "show", "remove"};
  verbs.insert(verbs.end(), others.begin(), others.end());
  if (!Has(verbs, verb)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", verb, "\" is none of ",
                                                   absl::StrJoin(verbs, ", "),
                                                   DidYouMean(verb, verbs)));
  }
  if (Has(others, verb)) {
    const absl::Status flags = CheckVerb(verb);
    return flags.ok() ? CheckOther(arguments) : flags;
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
  if (arguments.size() > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument \"", arguments[2], "\""));
  }
  return CheckVerb(verb);
}

ExitCode NamedThingsCommand::Run(const std::vector<std::string>& arguments,
                                 Session* session) {
  const std::string& verb = arguments[0];
  const std::string name = arguments.size() > 1 ? arguments[1] : "";
  if (verb == "add") return Add(name, session);
  if (verb == "remove") return Remove(name, session);
  if (Has(OtherVerbs(), verb)) return RunOther(arguments, session);
  return List(name, session);
}

}  // namespace roundhouse::client
