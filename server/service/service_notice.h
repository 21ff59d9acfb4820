// Tells the service manager how the daemon is, by the protocol of sd_notify(3):
// that it serves, that its event loop turns, and that it stops.
//
//   ServiceNotice notice(loop, SystemNotices());
//   notice.Ready("serving on unix:/run/roundhouse/roundhoused.sock");
//   ...
//   notice.Stopping("the running step ends first");
//
// The watchdog is fed by a timer of the loop: a loop that is stuck feeds
// nothing, and the manager ends the daemon and starts it again.
//
// Runs on the event loop's thread, or before the loop runs.
#ifndef ROUNDHOUSE_SERVER_SERVICE_SERVICE_NOTICE_H_
#define ROUNDHOUSE_SERVER_SERVICE_SERVICE_NOTICE_H_

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "server/loop/event_loop.h"

namespace roundhouse {

// A daemon that stops asks for this much time, and again every kStopStep while
// its loop turns.  What follows the loop's end fits into the rest.
inline constexpr absl::Duration kStopExtension = absl::Minutes(1);
inline constexpr absl::Duration kStopStep = absl::Seconds(10);

// kMust waits for a manager that reads nothing at the moment; kMay, for what
// the loop sends as it runs, does not.
enum class Arrive { kMust, kMay };

struct NoticeOptions {
  // Gets lines "KEY=value" of sd_notify(3).  False: the manager took none now.
  std::function<bool(const std::string& lines, Arrive arrive)> send;
  // How long the manager waits for a sign of life; zero: it does not look.
  absl::Duration watchdog;
};

// The manager that started this process, by NOTIFY_SOCKET, WATCHDOG_USEC and
// WATCHDOG_PID of the environment.  Without NOTIFY_SOCKET nothing is sent.
NoticeOptions SystemNotices();

class ServiceNotice {
 public:
  // `loop` outlives it.
  ServiceNotice(EventLoop& loop, NoticeOptions options);
  // Nothing more is sent.
  ~ServiceNotice();
  ServiceNotice(const ServiceNotice&) = delete;
  ServiceNotice& operator=(const ServiceNotice&) = delete;

  // Calls are answered.  Begins to feed the watchdog, at half of its time.
  void Ready(const std::string& status);
  // What `systemctl status` shows from now on; newlines are blanks in it.
  void SetStatus(const std::string& status);
  // The daemon ends.  Asks for time to do so as long as the loop turns: whoever
  // stops it has the last word on how long (kDrainLimit of server/daemon.h).
  void Stopping(const std::string& status);

 private:
  void Feed();
  void Extend();

  EventLoop& loop_;
  const NoticeOptions options_;
  EventLoop::TimerId feed_ = 0;
  EventLoop::TimerId extend_ = 0;
};

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_SERVICE_SERVICE_NOTICE_H_
