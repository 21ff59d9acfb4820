#include "server/core_files.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace roundhouse {

void LeaveNoCoreFiles() {
  const struct rlimit none = {};
  if (setrlimit(RLIMIT_CORE, &none) == 0 &&
      prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0) {
    return;
  }
  RH_LOG(kWarning) << "a crash may leave a core file with secrets in it: "
                   << std::strerror(errno);
}

}  // namespace roundhouse
