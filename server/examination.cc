#include "server/examination.h"

#include <iostream>
#include <vector>

#include "base/files/open_limit.h"
#include "server/api/api_server.h"

namespace roundhouse {

ExamineOptions WhatToExamine(const DaemonOptions& options) {
  const auto socket = SocketPath(options.listen);
  std::vector<std::string> roots = options.data_roots;
  for (const OwnedRoot& owned : options.owned_roots) {
    roots.push_back(owned.path);
  }
  return {
      .state_dir = options.state_dir,
      .socket_path = socket.ok() ? *socket : "",
      .data_roots = roots,
      .host_memory_bytes = options.host_memory_bytes,
      .devices = options.gpus.has_value()   ? DeviceKind::kGpu
                 : options.device_count > 0 ? DeviceKind::kCpu
                                            : DeviceKind::kNone,
      .realtime = options.realtime ? RealtimeWish::kAsked : RealtimeWish::kOff,
      .worker_program = options.worker_program,
      .gpu_probe = options.gpu_probe,
      .prepare_script = options.prepare_script,
      .python = options.python};
}

bool PrintExamination(const DaemonOptions& options) {
  LimitOpens();
  const std::vector<Finding> findings = Examine(WhatToExamine(options));
  std::cout << FindingsText(findings);
  return !HasProblem(findings);
}

}  // namespace roundhouse
