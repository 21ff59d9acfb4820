#include "server/workers/dispatch_priority.h"

#include <sched.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace roundhouse {

absl::Status PutBeforeCompute(pid_t thread, DispatchThread which) {
  sched_param priority = {};
  priority.sched_priority = static_cast<int>(which);
  if (sched_setscheduler(thread, SCHED_RR | SCHED_RESET_ON_FORK, &priority) ==
      0) {
    return absl::OkStatus();
  }
  const int error = errno;
  const std::string why =
      absl::StrCat("real-time priority ", static_cast<int>(which), ": ",
                   std::strerror(error));
  if (error == EPERM) return absl::PermissionDeniedError(why);
  if (error == ESRCH) return absl::NotFoundError(why);
  return absl::InternalError(why);
}

}  // namespace roundhouse
