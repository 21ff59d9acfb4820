#include "tests/bench/cpu_use.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace roundhouse::bench {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::StatusOr<std::vector<std::string>> Tasks(pid_t process) {
  std::error_code error;
  std::vector<std::string> paths;
  const std::string folder = absl::StrCat("/proc/", process, "/task");
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    paths.push_back(it->path().string());
  }
  if (!error && !paths.empty()) return paths;
  return absl::NotFoundError(absl::StrCat("process ", process, " has ended"));
}

absl::StatusOr<ProcessUse> ReadProcess(pid_t process) {
  ProcessUse use;
  ASSIGN_OR_RETURN(const std::vector<std::string> tasks, Tasks(process));
  for (const std::string& task : tasks) {
    int64_t cpu_ns = 0, ready_ns = 0;
    std::istringstream text(Contents(task + "/schedstat"));
    // A thread that ended since Tasks() counts no more.
    if (!(text >> cpu_ns >> ready_ns)) continue;
    const pid_t thread = std::stoi(task.substr(task.rfind('/') + 1));
    use[thread] = {static_cast<double>(cpu_ns) * 1e-9,
                   static_cast<double>(ready_ns) * 1e-9};
  }
  if (!use.empty()) return use;
  return absl::NotFoundError(
      absl::StrCat("process ", process, " has no schedstat"));
}

// "" for a child that is no worker.
std::string WorkerName(pid_t process) {
  std::string role, index;
  const std::string text =
      Contents(absl::StrCat("/proc/", process, "/cmdline"));
  for (const absl::string_view word : absl::StrSplit(text, '\0')) {
    if (absl::StartsWith(word, "--role=")) role = std::string(word.substr(7));
    if (absl::StartsWith(word, "--index=")) index = std::string(word.substr(8));
  }
  return role == "device" ? absl::StrCat(role, " ", index) : role;
}

absl::StatusOr<std::vector<pid_t>> Children(pid_t process) {
  std::vector<pid_t> children;
  ASSIGN_OR_RETURN(const std::vector<std::string> tasks, Tasks(process));
  for (const std::string& task : tasks) {
    std::istringstream text(Contents(task + "/children"));
    for (pid_t child = 0; text >> child;) children.push_back(child);
  }
  return children;
}

// The threads' increments.
std::vector<ThreadUse> Increments(const ProcessUse& before,
                                  const ProcessUse& after) {
  std::vector<ThreadUse> increments;
  for (const auto& [thread, use] : after) {
    const auto found = before.find(thread);
    const ThreadUse was = found == before.end() ? ThreadUse() : found->second;
    increments.push_back({use.cpu_seconds - was.cpu_seconds,
                          use.ready_seconds - was.ready_seconds});
  }
  return increments;
}

}  // namespace

absl::StatusOr<DaemonUse> ReadDaemonUse(pid_t daemon) {
  DaemonUse use;
  ASSIGN_OR_RETURN(use["daemon"], ReadProcess(daemon));
  ASSIGN_OR_RETURN(const std::vector<pid_t> children, Children(daemon));
  for (const pid_t child : children) {
    const std::string name = WorkerName(child);
    if (name.empty()) continue;
    ASSIGN_OR_RETURN(use[name], ReadProcess(child));
  }
  return use;
}

UseShares SharesBetween(const DaemonUse& before, const DaemonUse& after) {
  UseShares shares;
  double ready = 0;
  for (const auto& [name, process] : after) {
    const auto found = before.find(name);
    const std::vector<ThreadUse> threads = Increments(
        found == before.end() ? ProcessUse() : found->second, process);
    double sum = 0;
    ThreadUse busiest;
    for (const ThreadUse& thread : threads) {
      sum += thread.cpu_seconds;
      if (thread.cpu_seconds > busiest.cpu_seconds) busiest = thread;
    }
    shares.cpu_seconds += sum;
    if (absl::StartsWith(name, "device ")) {
      shares.compute += busiest.cpu_seconds;
      shares.device += sum - busiest.cpu_seconds;
      ready += busiest.ready_seconds;
    } else if (name == "host") {
      shares.host += sum;
    } else if (name == "daemon") {
      shares.daemon += sum;
    }
  }
  if (shares.compute > 0) {
    shares.compute_ready = ready / (ready + shares.compute);
  }
  if (!(shares.cpu_seconds > 0)) return shares;
  for (double* part :
       {&shares.compute, &shares.device, &shares.host, &shares.daemon}) {
    *part /= shares.cpu_seconds;
  }
  return shares;
}

}  // namespace roundhouse::bench
