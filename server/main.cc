// roundhoused: the daemon.  Exit status: 0 stopped in order, 1 failed, 2 usage.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/files/file_fault.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "base/visible_text.h"
#include "server/daemon.h"
#include "server/daemon_options.h"

namespace {

using roundhouse::DaemonOptions;
using roundhouse::DaemonSettings;

void PrintHelp() {
  std::cout << "roundhoused " << roundhouse::kVersion
            << ": fine-tunes language models on this server for a team.\n\n"
            << "Settings, as --key=value or in a --config file:\n"
            << roundhouse::DaemonHelpText();
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

absl::StatusOr<DaemonOptions> Options(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(DaemonSettings settings, roundhouse::ParseArguments(words));
  const auto config = settings.find("config");
  if (config != settings.end()) {
    std::ifstream file(config->second);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) {
      return absl::InvalidArgumentError("--config: cannot read " +
                                        config->second);
    }
    ASSIGN_OR_RETURN(const DaemonSettings from_file,
                     roundhouse::ParseConfigFile(text.str(), config->second));
    settings.insert(from_file.begin(), from_file.end());  // flags win
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return roundhouse::MakeDaemonOptions(settings, Environment(),
                                       program.string());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
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
  const auto options = Options(words);
  if (!options.ok()) {
    std::cerr << "roundhoused: " << options.status().message() << "\n";
    return 2;
  }
  absl::Status status = roundhouse::ArmKillPoint(options->kill_at);
  if (status.ok()) status = roundhouse::ArmFileFaults(options->file_fault_at);
  if (status.ok()) status = roundhouse::RunDaemon(*options);
  if (status.ok()) return 0;
  std::cerr << "roundhoused: "
            << roundhouse::VisibleText(std::string(status.message())) << "\n";
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}
