#include "server/service/service_notice.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/files/descriptor.h"
#include "base/log.h"

namespace roundhouse {
namespace {

// Whether the environment is kept: each notice looks it up again.
constexpr int kKeepEnvironment = 0;
// A manager that took no sign of life gets the next one after this part of the
// watchdog's time.
constexpr int kSoonerPart = 16;

// The manager's socket.  sd_notify waits while its queue is full, and a manager
// that is stuck must not stop the loop: what may be lost is sent from here.
class ManagerSocket {
 public:
  explicit ManagerSocket(const std::string& name)
      : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (name.size() >= sizeof(address_.sun_path)) return;
    std::memcpy(address_.sun_path, name.data(), name.size());
    if (name[0] == '@') address_.sun_path[0] = '\0';  // an abstract one
    bytes_ = offsetof(sockaddr_un, sun_path) + name.size();
  }

  bool Send(const std::string& lines) const {
    return sendto(socket_.get(), lines.data(), lines.size(), MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr*>(&address_),
                  static_cast<socklen_t>(bytes_)) >= 0;
  }

 private:
  const Descriptor socket_;
  sockaddr_un address_ = {.sun_family = AF_UNIX, .sun_path = {}};
  size_t bytes_ = 0;  // of it that count
};

bool SendAndWait(const std::string& lines) {
  const int sent = sd_notify(kKeepEnvironment, lines.c_str());
  if (sent >= 0) return true;
  RH_LOG(kWarning) << "the service manager can't be told \""
                   << lines.substr(0, lines.find('\n'))
                   << "\": " << std::strerror(-sent);
  return false;
}

std::string StatusLine(const std::string& status) {
  return absl::StrCat("STATUS=", absl::StrReplaceAll(status, {{"\n", " "}}));
}

}  // namespace

NoticeOptions SystemNotices() {
  uint64_t watchdog_usec = 0;
  const int enabled = sd_watchdog_enabled(kKeepEnvironment, &watchdog_usec);
  if (enabled < 0) {
    RH_LOG(kWarning) << "WATCHDOG_USEC or WATCHDOG_PID is no number: no "
                        "watchdog is fed ("
                     << std::strerror(-enabled) << ")";
  }
  const char* const name = getenv("NOTIFY_SOCKET");
  if (name == nullptr || *name == '\0') {
    return {.send = [](const std::string&, Arrive) { return true; }};
  }
  // Shared by copies of the function.
  const auto manager = std::make_shared<ManagerSocket>(name);
  return {.send =
              [manager](const std::string& lines, Arrive arrive) {
                return arrive == Arrive::kMust ? SendAndWait(lines)
                                               : manager->Send(lines);
              },
          .watchdog = enabled > 0 ? absl::Microseconds(watchdog_usec)
                                  : absl::ZeroDuration()};
}

ServiceNotice::ServiceNotice(EventLoop& loop, NoticeOptions options)
    : loop_(loop), options_(std::move(options)) {}

ServiceNotice::~ServiceNotice() {
  loop_.CancelTimer(feed_);
  loop_.CancelTimer(extend_);
}

void ServiceNotice::Ready(const std::string& status) {
  options_.send(absl::StrCat("READY=1\n", StatusLine(status)), Arrive::kMust);
  if (options_.watchdog > absl::ZeroDuration()) Feed();
}

void ServiceNotice::SetStatus(const std::string& status) {
  options_.send(StatusLine(status), Arrive::kMay);
}

void ServiceNotice::Stopping(const std::string& status) {
  options_.send(absl::StrCat("STOPPING=1\n", StatusLine(status)), Arrive::kMay);
  Extend();
}

void ServiceNotice::Feed() {
  const bool taken = options_.send("WATCHDOG=1", Arrive::kMay);
  feed_ = loop_.After(options_.watchdog / (taken ? 2 : kSoonerPart),
                      [this] { Feed(); });
}

void ServiceNotice::Extend() {
  options_.send(absl::StrCat("EXTEND_TIMEOUT_USEC=",
                             absl::ToInt64Microseconds(kStopExtension)),
                Arrive::kMay);
  extend_ = loop_.After(kStopStep, [this] { Extend(); });
}

}  // namespace roundhouse
