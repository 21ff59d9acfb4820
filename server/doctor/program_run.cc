#include "server/doctor/program_run.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstddef>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/loop/event_loop.h"
#include "server/workers/child_process.h"

namespace roundhouse {
namespace {

constexpr size_t kMostOutputBytes = 16 << 10;

std::string LastLine(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  return std::string(text.substr(text.rfind('\n') + 1));
}

}  // namespace

ProgramEnd RunToEnd(const std::string& program,
                    const std::vector<std::string>& arguments,
                    absl::Duration limit) {
  auto loop = EventLoop::Create();
  if (!loop.ok()) return {.status = loop.status()};
  ProgramEnd end;
  std::string output;
  const auto child = ChildProcess::Start(
      **loop,
      {.program = program,
       .arguments = arguments,
       .environment = {"LANG=C.UTF-8"},
       .capture_stdout = true,
       .ends_group = true},
      [&](int wait_status) {
        end.exit_status =
            WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
        (*loop)->Quit();
      },
      [&](const std::string& text) {
        output.append(text, 0, kMostOutputBytes - output.size());
      });
  if (!child.ok()) return {.status = child.status()};
  (*loop)->After(limit, [&] {
    end.status = absl::DeadlineExceededError(absl::StrCat(
        "does not end within ", absl::FormatDuration(limit), ": killed"));
    (*loop)->Quit();
  });
  (*loop)->Run();
  end.last_line = LastLine((*child)->stderr_tail());
  end.last_output = LastLine(output);
  return end;
}

}  // namespace roundhouse
