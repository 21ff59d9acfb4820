#include "client/environment.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "base/files/descriptor.h"
#include "base/files/whole_io.h"

namespace roundhouse::client {
namespace {

constexpr int kUsualColumns = 80;

std::optional<std::string> Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int Columns() {
  for (int fd : {STDERR_FILENO, STDOUT_FILENO}) {
    winsize size = {};
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      return size.ws_col;
    }
  }
  return kUsualColumns;
}

// Longer lines are nobody's answer.
constexpr size_t kMaxAnswerBytes = 4096;

// Keys of a terminal that shows nothing and makes no lines and signals itself.
constexpr char kInterrupted = 3, kEndOfInput = 4, kBackspace = 8, kDelete = 127;

// A line without its end.  Nothing: there is no whole one.
std::optional<std::string> ReadLine(int terminal, Typed typed) {
  std::string line;
  for (char c = 0;
       read(terminal, &c, 1) == 1 && line.size() < kMaxAnswerBytes;) {
    if (c == '\n' || c == '\r') return line;
    if (typed == Typed::kShown) {
      line += c;
    } else if (c == kInterrupted || c == kEndOfInput) {
      return std::nullopt;
    } else if (c != kBackspace && c != kDelete) {
      line += c;
    } else if (!line.empty()) {
      line.pop_back();
    }
  }
  return std::nullopt;
}

// The terminal itself, whatever standard input is.
std::optional<std::string> Ask(const std::string& question, Typed typed) {
  const Descriptor terminal(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (terminal.get() < 0) return std::nullopt;
  if (typed == Typed::kShown) {
    if (!WriteAll(terminal.get(), question)) return std::nullopt;
    return ReadLine(terminal.get(), typed);
  }
  struct termios before = {};
  if (tcgetattr(terminal.get(), &before) != 0) return std::nullopt;
  // Ctrl-C is a key here, so that it leaves no terminal without an echo.
  struct termios quiet = before;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG);
  if (tcsetattr(terminal.get(), TCSAFLUSH, &quiet) != 0) return std::nullopt;
  std::optional<std::string> answer;
  if (WriteAll(terminal.get(), question)) {
    answer = ReadLine(terminal.get(), typed);
  }
  tcsetattr(terminal.get(), TCSAFLUSH, &before);
  (void)WriteAll(terminal.get(), "\n");
  return answer;
}

bool IsTerminal(int fd) {
  return isatty(fd) == 1 && Variable("TERM").value_or("dumb") != "dumb";
}

}  // namespace

absl::Duration RetryPolicy::DelayAfter(int failures) const {
  absl::Duration delay = first_delay;
  for (int i = 1; i < failures && delay < longest_delay; ++i) {
    delay *= 2;
  }
  return std::min(delay, longest_delay);
}

bool Environment::ColorsAllowed() const {
  return variable("NO_COLOR").value_or("").empty() &&
         variable("TERM").value_or("") != "dumb";
}

Environment ProcessEnvironment(Interrupt* interrupt) {
  Environment environment;
  environment.in = &std::cin;
  environment.in_is_terminal = isatty(STDIN_FILENO) == 1;
  environment.ask = Ask;
  environment.out = &std::cout;
  environment.err = &std::cerr;
  environment.out_is_terminal = IsTerminal(STDOUT_FILENO);
  environment.err_is_terminal = IsTerminal(STDERR_FILENO);
  environment.columns = Columns;
  environment.variable = Variable;
  environment.interrupt = interrupt;
  return environment;
}

}  // namespace roundhouse::client
