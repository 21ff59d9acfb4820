#include "client/environment.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

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
