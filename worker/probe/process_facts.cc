#include "worker/probe/process_facts.h"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace roundhouse::worker {
namespace {

// Longer chains are of nobody, and ids may be given anew while it is looked.
constexpr int kMaxAncestors = 64;

}  // namespace

std::optional<ProcessFacts> FactsOf(pid_t pid) {
  if (pid <= 0 || (kill(pid, 0) != 0 && errno != EPERM)) return std::nullopt;
  const std::string folder = absl::StrCat("/proc/", pid);
  ProcessFacts facts;
  struct stat status = {};
  if (stat(folder.c_str(), &status) == 0) facts.uid = status.st_uid;
  // "4711 (a name) S 1 ...", and the name may have brackets.
  std::ifstream file(folder + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t begin = text.find('(');
  const size_t end = text.rfind(')');
  if (begin == std::string::npos || end == std::string::npos) return facts;
  facts.name = text.substr(begin + 1, end - begin - 1);
  const std::vector<std::string> words =
      absl::StrSplit(text.substr(end + 1), ' ', absl::SkipEmpty());
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &facts.parent)) {
    facts.parent = 0;
  }
  return facts;
}

bool DescendsFrom(pid_t pid, pid_t ancestor) {
  for (int i = 0; i < kMaxAncestors && pid > 0; ++i) {
    if (pid == ancestor) return true;
    const std::optional<ProcessFacts> facts = FactsOf(pid);
    if (!facts.has_value()) return false;
    pid = facts->parent;
  }
  return false;
}

}  // namespace roundhouse::worker
