#include "server/service/service_notice.h"

#include <systemd/sd-daemon.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/log.h"

namespace roundhouse {
namespace {

// Whether the environment is kept: each notice looks it up again.
constexpr int kKeepEnvironment = 0;

void SendToSystem(const std::string& lines) {
  const int sent = sd_notify(kKeepEnvironment, lines.c_str());
  if (sent >= 0) return;
  RH_LOG(kWarning) << "the service manager can't be told \""
                   << lines.substr(0, lines.find('\n'))
                   << "\": " << std::strerror(-sent);
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
  return {.send = &SendToSystem,
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
  options_.send(absl::StrCat("READY=1\n", StatusLine(status)));
  if (options_.watchdog > absl::ZeroDuration()) Feed();
}

void ServiceNotice::SetStatus(const std::string& status) {
  options_.send(StatusLine(status));
}

void ServiceNotice::Stopping(const std::string& status) {
  options_.send(absl::StrCat("STOPPING=1\n", StatusLine(status)));
  Extend();
}

void ServiceNotice::Feed() {
  options_.send("WATCHDOG=1");
  feed_ = loop_.After(options_.watchdog / 2, [this] { Feed(); });
}

void ServiceNotice::Extend() {
  options_.send(absl::StrCat("EXTEND_TIMEOUT_USEC=",
                             absl::ToInt64Microseconds(kStopExtension)));
  extend_ = loop_.After(kStopStep, [this] { Extend(); });
}

}  // namespace roundhouse
