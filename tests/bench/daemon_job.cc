#include "tests/bench/daemon_job.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "tests/bench/process.h"

namespace roundhouse::bench {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(30);
constexpr absl::Duration kLook = absl::Milliseconds(20);

std::vector<std::string> DaemonCommand(const DaemonJob& job) {
  std::vector<std::string> command = {
      job.root + "/server/roundhoused", "--state-dir=" + job.run + "/state",
      absl::StrCat("--listen=unix:", job.run, "/socket"),
      "--prepare-script=" + job.root + "/server/prepare/prepare.py",
      "--sample-log=" + job.run + "/samples.csv"};
  command.insert(command.end(), job.flags.begin(), job.flags.end());
  return command;
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

absl::StatusOr<UseShares> Observe(const DaemonJob& job, Process& daemon) {
  ASSIGN_OR_RETURN(
      const auto client,
      Process::Start({job.root + "/client/roundhouse",
                      absl::StrCat("--server=unix:", job.run, "/socket"),
                      "submit", "-f", job.run + "/job.yaml", "--wait"},
                     job.run + "/client.log"));
  const std::string log = job.run + "/samples.csv";
  RETURN_IF_ERROR(AwaitStep(*client, log, job.first_step));
  ASSIGN_OR_RETURN(const DaemonUse before, ReadDaemonUse(daemon.pid()));
  RETURN_IF_ERROR(AwaitStep(*client, log, job.last_step));
  ASSIGN_OR_RETURN(const DaemonUse after, ReadDaemonUse(daemon.pid()));
  RETURN_IF_ERROR(client->Await());
  return SharesBetween(before, after);
}

}  // namespace

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::StatusOr<DaemonJobResult> RunDaemonJob(const DaemonJob& job) {
  ASSIGN_OR_RETURN(const auto daemon,
                   Process::Start(DaemonCommand(job), job.run + "/daemon.log"));
  RETURN_IF_ERROR(AwaitSocket(*daemon, job.run + "/socket"));
  DaemonJobResult result;
  ASSIGN_OR_RETURN(result.use, Observe(job, *daemon));
  daemon->Signal(SIGTERM);
  RETURN_IF_ERROR(daemon->Await());
  ASSIGN_OR_RETURN(result.samples,
                   ReadSamples(Contents(job.run + "/samples.csv"),
                               job.first_step, job.last_step));
  return result;
}

}  // namespace roundhouse::bench
