#include "tests/bench/quickstart_job.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tests/bench/process.h"

namespace roundhouse::bench {
namespace {

absl::Status RunScript(const QuickstartOptions& options,
                       std::vector<std::string> arguments) {
  arguments[0] =
      absl::StrCat(options.root, "/deploy/quickstart.d/", arguments[0]);
  arguments.insert(arguments.begin(), options.root + "/deploy/run-python");
  ASSIGN_OR_RETURN(const auto script,
                   Process::Start(arguments, options.scratch + "/inputs.log"));
  return script->Await();
}

// The quickstart's own job with another number of steps, and `fields`.
absl::Status WriteJob(const QuickstartOptions& options,
                      const std::string& path) {
  const std::string source = options.root + "/deploy/quickstart.d/job.yaml";
  std::ofstream job(path);
  bool found = false;
  const std::vector<std::string> lines = absl::StrSplit(Contents(source), '\n');
  for (const std::string& line : lines) {
    const bool steps = absl::StartsWith(line, "max_steps:");
    found |= steps;
    job << (steps ? absl::StrCat("max_steps: ", options.steps) : line) << '\n';
  }
  job << options.fields;
  if (found && job.flush()) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(source, " has no max_steps, or ", path, " is not writable"));
}

}  // namespace

absl::Status MakeQuickstartInputs(const QuickstartOptions& options) {
  const std::string data = options.scratch + "/data";
  RETURN_IF_ERROR(RunScript(options, {"make_data.py", "--out", data}));
  return RunScript(options, {"make_model.py", "--text", data + "/train.jsonl",
                             "--out", options.scratch + "/model"});
}

absl::StatusOr<DaemonJobResult> RunQuickstartJob(
    const QuickstartOptions& options) {
  DaemonJob job;
  job.root = options.root;
  job.run = options.scratch + "/run";
  std::error_code error;
  std::filesystem::remove_all(job.run, error);
  std::filesystem::create_directories(job.run, error);
  RETURN_IF_ERROR(WriteJob(options, job.run + "/job.yaml"));
  job.flags = {
      absl::StrCat("--devices=cpu:", options.devices),
      "--device-threads=1",
      "--device-memory=1GiB",
      "--host-memory=2GiB",
      "--metrics-listen=127.0.0.1:0",
      "--data-root=" + options.scratch,
      "--worker-program=" + options.root + "/worker/roundhouse-worker"};
  job.first_step = kFirstStep;
  job.last_step = options.steps;
  return RunDaemonJob(job);
}

}  // namespace roundhouse::bench
