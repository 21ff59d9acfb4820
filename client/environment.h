// What a command sees of the process around it: streams, terminal, environment
// variables, clock, Ctrl-C, patience.  Tests make their own.
//
// A value of borrowed parts; thread-compatible.
#ifndef ROUNDHOUSE_CLIENT_ENVIRONMENT_H_
#define ROUNDHOUSE_CLIENT_ENVIRONMENT_H_

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace roundhouse::client {

class Interrupt;

// Exponential backoff with a limit.
struct RetryPolicy {
  // Calls in all, the first included.
  int attempts = 6;
  // Before the second call; doubled before each later one ...
  absl::Duration first_delay = absl::Milliseconds(200);
  // ... up to this.
  absl::Duration longest_delay = absl::Seconds(10);

  // REQUIRES: failures >= 1, the calls that have failed in a row.
  absl::Duration DelayAfter(int failures) const;
};

enum class Typed { kShown, kHidden };

struct Environment {
  // What is typed or piped in, and whether somebody types there.
  std::istream* in = nullptr;
  bool in_is_terminal = false;
  // Asks whoever sits at the terminal; what he types is shown, or (a secret) is
  // not.  Nothing: there is nobody.
  std::function<std::optional<std::string>(const std::string& question,
                                           Typed typed)>
      ask = [](const std::string&, Typed) { return std::nullopt; };
  // Data goes to out, everything else to err.
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  // Whether they can show a line that redraws itself.
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // The terminal's width, now.
  std::function<int()> columns = [] { return 80; };
  // Empty: not set.
  std::function<std::optional<std::string>(const std::string&)> variable;
  std::function<absl::Time()> now = absl::Now;
  Interrupt* interrupt = nullptr;  // borrowed
  // For Create: some 6 s in all.
  RetryPolicy submit_retry;
  // For streams, counted anew after every message: about a minute.
  RetryPolicy stream_retry = {.attempts = 12};

  // NO_COLOR (any value but "") and TERM=dumb turn colours off.
  bool ColorsAllowed() const;
};

// The process's own.  `interrupt` is borrowed.
Environment ProcessEnvironment(Interrupt* interrupt);

}  // namespace roundhouse::client

#endif  // ROUNDHOUSE_CLIENT_ENVIRONMENT_H_
