#include "server/gpu/gpu_users.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/wire/exit_status.h"
#include "base/wire/gpu_report.h"
#include "server/workers/child_process.h"

namespace roundhouse {
namespace {

// PROC_PID_INIT_INO of the kernel, the same on every machine.
constexpr char kFirstNamespace[] = "pid:[4026531836]";
constexpr size_t kMostBytes =
    (wire::kMaxGpus + 1) * (wire::kMaxGpuProcessesBytes + 1);

std::string Argument() { return absl::StrCat("--processes_but=", getpid()); }

absl::StatusOr<std::vector<wire::GpuProcesses>> DecodeLook(
    const std::string& output) {
  const std::vector<std::string> lines = absl::StrSplit(output, '\n');
  if (lines.front() != wire::kGpuProcessesBegin || !lines.back().empty()) {
    return absl::InternalError("the GPU probe did not print processes");
  }
  std::vector<wire::GpuProcesses> all;
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    ASSIGN_OR_RETURN(all.emplace_back(), wire::DecodeGpuProcesses(lines[i]));
  }
  return all;
}

}  // namespace

absl::Status CheckProcessIds(const std::string& link) {
  std::error_code error;
  const auto found = std::filesystem::read_symlink(link, error);
  if (!error && found == kFirstNamespace) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the NVIDIA driver tells process ids of the machine, and this daemon has "
      "a namespace of its own for them, as in a container: it could not tell "
      "its workers from other processes");
}

absl::StatusOr<std::vector<wire::GpuProcesses>> LookAtGpuUsers(
    const GpuProbeOptions& options) {
  ASSIGN_OR_RETURN(const auto loop, EventLoop::Create());
  absl::Status ended = absl::DeadlineExceededError(
      absl::StrCat("the GPU probe told no processes within ",
                   absl::FormatDuration(options.deadline), ": killed"));
  std::string output;
  std::unique_ptr<ChildProcess> child;
  ASSIGN_OR_RETURN(
      child, ChildProcess::Start(
                 *loop,
                 {.program = options.program,
                  .arguments = {Argument(), "--looks=1"},
                  .capture_stdout = true},
                 [&](int status) {
                   const std::string words = absl::StrCat(
                       "the GPU probe ", DescribeExit(status), ": ",
                       child->stderr_tail().substr(
                           0, child->stderr_tail().find('\n')));
                   const bool unable = WIFEXITED(status) &&
                                       WEXITSTATUS(status) == wire::kUnableExit;
                   ended = status == 0 ? absl::OkStatus()
                           : unable    ? absl::FailedPreconditionError(words)
                                       : absl::InternalError(words);
                   loop->Quit();
                 },
                 [&](const std::string& text) {
                   output += text;
                   if (output.size() > kMostBytes) child->Kill(SIGKILL);
                 }));
  loop->After(options.deadline, [&] { loop->Quit(); });
  loop->Run();
  RETURN_IF_ERROR(ended);
  return DecodeLook(output);
}

GpuUsers::GpuUsers(EventLoop& loop, std::string program, OnLook on_look,
                   absl::Duration restart_delay)
    : watch_(loop,
             {.program = std::move(program),
              .argument = Argument(),
              .begin = wire::kGpuProcessesBegin,
              .max_line_bytes = wire::kMaxGpuProcessesBytes,
              .what = "processes on GPUs",
              .restart_delay = restart_delay},
             [told = std::move(on_look)](const std::string& line) {
               const auto look = wire::DecodeGpuProcesses(line);
               if (look.ok()) told(*look);
               return look.status();
             }) {}

}  // namespace roundhouse
