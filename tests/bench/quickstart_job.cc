#include "tests/bench/quickstart_job.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "tests/bench/process.h"

namespace roundhouse::bench {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(30);
constexpr absl::Duration kLook = absl::Milliseconds(20);

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status RunScript(const QuickstartOptions& options,
                       std::vector<std::string> arguments) {
  arguments[0] =
      absl::StrCat(options.root, "/deploy/quickstart.d/", arguments[0]);
  arguments.insert(arguments.begin(), options.root + "/deploy/run-python");
  ASSIGN_OR_RETURN(const auto script,
                   Process::Start(arguments, options.scratch + "/inputs.log"));
  return script->Await();
}

// The quickstart's own job with another number of steps.
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
  if (found && job.flush()) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(source, " has no max_steps, or ", path, " is not writable"));
}

std::vector<std::string> DaemonCommand(const QuickstartOptions& options,
                                       const std::string& run) {
  return {options.root + "/server/roundhoused",
          "--state-dir=" + run + "/state",
          absl::StrCat("--devices=cpu:", options.devices),
          "--device-threads=1",
          "--device-memory=1GiB",
          "--host-memory=2GiB",
          absl::StrCat("--listen=unix:", run, "/socket"),
          "--metrics-listen=127.0.0.1:0",
          "--data-root=" + options.scratch,
          "--worker-program=" + options.root + "/worker/roundhouse-worker",
          "--prepare-script=" + options.root + "/server/jobs/prepare.py",
          "--sample-log=" + run + "/samples.csv"};
}

absl::Status AwaitSocket(Process& daemon, const std::string& path) {
  const absl::Time limit = absl::Now() + kStartLimit;
  while (!std::filesystem::is_socket(path)) {
    if (!daemon.Running()) return daemon.Await();
    if (absl::Now() > limit) {
      return absl::DeadlineExceededError("the daemon does not listen");
    }
    absl::SleepFor(kLook);
  }
  return absl::OkStatus();
}

// Until the log has that step; the daemon writes whole lines.
absl::Status AwaitStep(Process& client, const std::string& log, int64_t step) {
  const std::string wanted = absl::StrCat("step,", step, ",");
  while (!absl::StrContains(Contents(log), "\n" + wanted)) {
    if (!client.Running()) {
      RETURN_IF_ERROR(client.Await());
      if (absl::StrContains(Contents(log), "\n" + wanted)) break;
      return absl::NotFoundError(
          absl::StrCat("the job ended without step ", step));
    }
    absl::SleepFor(kLook);
  }
  return absl::OkStatus();
}

absl::StatusOr<UseShares> Observe(const QuickstartOptions& options,
                                  Process& daemon, const std::string& run) {
  ASSIGN_OR_RETURN(
      const auto client,
      Process::Start({options.root + "/client/roundhouse",
                      absl::StrCat("--server=unix:", run, "/socket"), "submit",
                      "-f", run + "/job.yaml", "--wait"},
                     run + "/client.log"));
  const std::string log = run + "/samples.csv";
  RETURN_IF_ERROR(AwaitStep(*client, log, kFirstStep));
  ASSIGN_OR_RETURN(const DaemonUse before, ReadDaemonUse(daemon.pid()));
  RETURN_IF_ERROR(AwaitStep(*client, log, options.steps));
  ASSIGN_OR_RETURN(const DaemonUse after, ReadDaemonUse(daemon.pid()));
  RETURN_IF_ERROR(client->Await());
  return SharesBetween(before, after);
}

}  // namespace

absl::Status MakeQuickstartInputs(const QuickstartOptions& options) {
  const std::string data = options.scratch + "/data";
  RETURN_IF_ERROR(RunScript(options, {"make_data.py", "--out", data}));
  return RunScript(options, {"make_model.py", "--text", data + "/train.jsonl",
                             "--out", options.scratch + "/model"});
}

absl::StatusOr<QuickstartResult> RunQuickstartJob(
    const QuickstartOptions& options) {
  const std::string run = options.scratch + "/run";
  std::error_code error;
  std::filesystem::remove_all(run, error);
  std::filesystem::create_directories(run, error);
  RETURN_IF_ERROR(WriteJob(options, run + "/job.yaml"));
  ASSIGN_OR_RETURN(
      const auto daemon,
      Process::Start(DaemonCommand(options, run), run + "/daemon.log"));
  RETURN_IF_ERROR(AwaitSocket(*daemon, run + "/socket"));
  QuickstartResult result;
  ASSIGN_OR_RETURN(result.use, Observe(options, *daemon, run));
  daemon->Signal(SIGTERM);
  RETURN_IF_ERROR(daemon->Await());
  ASSIGN_OR_RETURN(result.samples, ReadSamples(Contents(run + "/samples.csv"),
                                               kFirstStep, options.steps));
  return result;
}

}  // namespace roundhouse::bench
