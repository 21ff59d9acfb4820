#include "worker/board/lost_device.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

#include "absl/strings/string_view.h"
#include "base/log.h"

namespace roundhouse::worker {
namespace {

[[noreturn]] void EndProcess(absl::string_view why) {
  RH_LOG(kError) << why << "; this process ends";
  std::fflush(nullptr);
  _exit(1);
}

[[noreturn]] void EndProcessOfException() {
  std::string what = "terminated without an exception";
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    what = "an exception of an unknown type";
  }
  EndProcess(absl::string_view(what).substr(0, what.find('\n')));
}

}  // namespace

void EndProcessIfLost(const absl::Status& status) {
  if (absl::IsAborted(status)) EndProcess(status.message());
}

void EndProcessIfExhausted(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) EndProcess(status.message());
}

void EndProcessOnTerminate() { std::set_terminate(&EndProcessOfException); }

}  // namespace roundhouse::worker
