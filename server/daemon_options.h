// What the settings of roundhoused mean (daemon_settings.h), with the defaults
// of those that are not given.
//
// Looks only at which programs are there.  Values; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DAEMON_OPTIONS_H_
#define ROUNDHOUSE_SERVER_DAEMON_OPTIONS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/host_port.h"
#include "server/daemon_settings.h"
#include "server/gpu/gpu_choice.h"
#include "server/hub/hub_address.h"
#include "server/spec/paths.h"
#include "server/tls/tls_context.h"

namespace roundhouse {

// Whether devices add up sums between them: kAuto, GPUs that reach each other.
enum class PeerChoice { kAuto, kOn, kOff };

// Where models are pulled from.
struct HubOptions {
  std::optional<HubAddress> address;  // none: nowhere
  std::string token_file;             // "": no token is shown
};

// Whether devices are left to processes of others (server/yielding.h).
struct YieldOptions {
  // kPretended, test only: CPU devices count, named cpu-0, cpu-1 ... as GPUs
  // are by their uuids, and the driver's process ids are taken for this
  // process'.
  enum class Choice { kOff, kAuto, kPretended };
  Choice choice = Choice::kOff;
  // How long such a process must have been gone.
  absl::Duration back_after = absl::Minutes(1);
};

struct DaemonOptions {
  std::string state_dir;
  int device_count = 4;            // 0: --devices=none
  std::optional<GpuRequest> gpus;  // --devices=cuda; device_count then follows
  int device_threads = 1;
  // 0: as much as the GPUs have free.
  uint64_t device_memory_bytes = uint64_t{1} << 30;
  std::string listen;                  // "unix:PATH"
  std::optional<HostPort> listen_tls;  // nullopt: no TLS
  TlsFiles tls;                    // without a certificate: the daemon's own
  std::string metrics_listen;      // "HOST:PORT"; "": none
  std::string metrics_token_file;  // "": whoever can connect may look
  std::vector<std::string> data_roots;
  std::vector<OwnedRoot> owned_roots;  // --project-root, then --user-root
  std::string hf_cache;                // the Hugging Face cache; "": none
  HubOptions hub;
  uint64_t host_memory_bytes = uint64_t{8} << 30;
  int host_threads = 1;
  int max_running_jobs = 16;
  PeerChoice peers = PeerChoice::kAuto;
  // Dispatch goes before compute (server/workers/dispatch_priority.h), where
  // permitted.
  bool realtime = true;
  YieldOptions yield;
  double link_gbps = 0;  // 10^9 bits per second; 0: not throttled
  std::string worker_program;
  std::string gpu_probe;  // program
  absl::Duration gpu_probe_limit = absl::Seconds(60);
  std::string prepare_script;
  int dataset_processes = 1;
  std::string python;
  // Test only: worker -> the kill points of its first, second ... process.
  std::map<std::string, std::deque<std::string>> worker_kill_at;
  std::string kill_at;        // test only: of the daemon itself
  std::string file_fault_at;  // test only: base/files/file_fault.h
  std::string sample_log;     // test only: file for observe/timing_log.h
};

// Values of `settings` over the defaults that `environment` gives
// (XDG_STATE_HOME, XDG_RUNTIME_DIR, XDG_CACHE_HOME, HOME, ROUNDHOUSE_PYTHON,
// HF_HUB_CACHE, HF_HOME).
// `program` is this executable's real path: the worker and the dataset helper
// are looked for beside it.  INVALID_ARGUMENT names the flag, or file, line and
// key, and what is wanted.
absl::StatusOr<DaemonOptions> MakeDaemonOptions(
    const DaemonSettings& settings,
    const std::map<std::string, std::string>& environment,
    const std::string& program);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DAEMON_OPTIONS_H_
