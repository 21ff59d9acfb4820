// roundhoused: the daemon.  Exit status: 0 stopped in order, 1 failed, 2 usage.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <vector>

#include "absl/time/time.h"
#include "base/files/file_fault.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "base/visible_text.h"
#include "server/daemon.h"
#include "server/daemon_options.h"
#include "server/examination.h"

namespace {

using roundhouse::DaemonOptions;
using roundhouse::DaemonSettings;

// Exit statuses.
constexpr int kFailed = 1;
constexpr int kUsage = 2;

void PrintHelp() {
  std::cout << "roundhoused " << roundhouse::kVersion
            << ": fine-tunes language models on this server for a team.\n\n"
            << "Settings, as --key=value or in a --config file:\n"
            << roundhouse::DaemonHelpText()
            << "\n--help prints this text, --version the version.  --doctor "
               "looks whether this\nmachine is fit for these settings, says "
               "what to do where it is not, and ends.\n\n"
            << "Exit status: 0 stopped in order, 1 failed (with --doctor: a "
               "problem), 2 usage.\n";
}

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> environment;
  for (const char* name :
       {"HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME",
        "ROUNDHOUSE_PYTHON", "HF_HUB_CACHE", "HF_HOME"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) environment[name] = value;
  }
  return environment;
}

absl::StatusOr<DaemonOptions> Options(const DaemonSettings& settings) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return roundhouse::MakeDaemonOptions(settings, Environment(),
                                       program.string());
}

absl::Status Run(const DaemonOptions& options) {
  RETURN_IF_ERROR(roundhouse::ArmKillPoint(options.kill_at));
  RETURN_IF_ERROR(roundhouse::ArmFileFaults(options.file_fault_at));
  // gRPC puts a local time into each error, and would read the zone's file on
  // the event loop's thread.
  absl::LocalTimeZone();
  return roundhouse::RunDaemon(options);
}

int Fail(const absl::Status& status, int exit_status) {
  std::cerr << "roundhoused: "
            << roundhouse::VisibleText(std::string(status.message())) << "\n";
  return exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool examine = std::erase(words, "--doctor") > 0;
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") {
      PrintHelp();
      return 0;
    }
    if (word == "--version") {
      std::cout << "roundhoused " << roundhouse::kVersion << "\n";
      return 0;
    }
  }
  roundhouse::SetLogName("roundhoused");
  // What members' data became is the daemon's user's and group's: the store,
  // prepared tokens, checkpoints, outputs.  Workers and helpers inherit this.
  umask(0027);
  const auto settings = roundhouse::ReadDaemonSettings(words);
  if (!settings.ok()) return Fail(settings.status(), kUsage);
  const auto options = Options(*settings);
  if (!options.ok()) return Fail(options.status(), kUsage);
  if (examine) return roundhouse::PrintExamination(*options) ? 0 : kFailed;
  const absl::Status status = roundhouse::AtItsLine(Run(*options), *settings);
  if (status.ok()) return 0;
  const bool usage = status.code() == absl::StatusCode::kInvalidArgument;
  return Fail(status, usage ? kUsage : kFailed);
}
