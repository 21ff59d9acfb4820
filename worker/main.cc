// roundhouse-worker: one disposable process of the daemon's
// (docs/design/daemon.md).  The daemon starts it with its socket and the arena
// inherited; it ends with Stop, with its socket, or with its daemon.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "worker/board/lost_device.h"
#include "worker/context.h"
#include "worker/device/open_device.h"
#include "worker/files/files_worker.h"
#include "worker/host/host_worker.h"
#include "worker/model/generation.h"
#include "worker/model/library_choices.h"
#include "worker/model/prepare_library.h"
#include "worker/model/stage_run.h"
#include "worker/program.h"
#include "worker/slot/device_worker.h"

namespace roundhouse::worker {
namespace {

absl::Status RunDevice(const WorkerContext& context) {
  EndProcessOnTerminate();
  const DeviceFlags flags = GetDeviceFlags();
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                   OpenDevice(flags.device, flags.memory_bytes));
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->NewStream());
    RETURN_IF_ERROR(PrepareLibrary(stream->native()));
  }
  SlotRunnerOptions options;
  options.make_run = &StageRun::Create;
  options.make_generation = &GenerationRun::Create;
  options.prepare_compute_thread = [threads = context.threads] {
    SetComputeThreads(threads);
  };
  options.link_gbps = flags.link_gbps;
  options.chunk_bytes = flags.copy_chunk_bytes;
  options.peers = flags.peers;
  return RunDeviceWorker(context, *device, std::move(options));
}

absl::Status Run(const std::string& role, const WorkerContext& context) {
  if (role == "device") return RunDevice(context);
  if (role == "host") return RunHostWorker(context);
  if (role == "files") return RunFilesWorker(context);
  return UnknownRole(role);
}

}  // namespace
}  // namespace roundhouse::worker

int main(int argc, char** argv) {
  const absl::Status fixed = roundhouse::worker::FixLibraryChoices(argv);
  if (!fixed.ok()) {
    RH_LOG(kError) << fixed.ToString();
    return 1;
  }
  const int status = roundhouse::worker::RunWorkerProgram(
      argc, argv, &roundhouse::worker::Run);
  // Past LibTorch's static destructors: they take thousands of operators out of
  // its registry, 0.18 s of CPU time in each process, and nothing is left that
  // needs them.
  std::fflush(nullptr);
  _exit(status);
}
