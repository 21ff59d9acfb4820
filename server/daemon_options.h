// What roundhoused is told when it starts: flags, or a config file with the
// same keys.
//
// Pure parsing; thread-compatible.
#ifndef ROUNDHOUSE_SERVER_DAEMON_OPTIONS_H_
#define ROUNDHOUSE_SERVER_DAEMON_OPTIONS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/gpu/gpu_choice.h"

namespace roundhouse {

// Whether devices add up sums between them: kAuto, GPUs that reach each other.
enum class PeerChoice { kAuto, kOn, kOff };

// As written, keys with dashes: "host-memory" -> "8GiB".
using DaemonSettings = std::map<std::string, std::string>;

struct DaemonOptions {
  std::string state_dir;
  int device_count = 4;            // 0: --devices=none
  std::optional<GpuRequest> gpus;  // --devices=cuda; device_count then follows
  int device_threads = 1;
  // 0: as much as the GPUs have free.
  uint64_t device_memory_bytes = uint64_t{1} << 30;
  std::string listen;          // "unix:PATH"
  std::string metrics_listen;  // "HOST:PORT"; "": none
  std::vector<std::string> data_roots;
  std::string hf_cache;  // the Hugging Face cache; "": none
  uint64_t host_memory_bytes = uint64_t{8} << 30;
  int host_threads = 1;
  int max_running_jobs = 2;
  PeerChoice peers = PeerChoice::kAuto;
  // Dispatch goes before compute (pool/dispatch_priority.h), where permitted.
  bool realtime = true;
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
  std::string sample_log;     // test only: file for observe/sample_log.h
};

// One line of --help a setting.
struct SettingHelp {
  const char* key;
  const char* default_text;
  const char* meaning;
};
const std::vector<SettingHelp>& DaemonSettingsHelp();
// Each of them with its default, in lines of at most 80 columns.
std::string DaemonHelpText();

// "8GiB", "512MiB", "1000000": bytes.  INVALID_ARGUMENT names `key`.
absl::StatusOr<uint64_t> ParseBytes(const std::string& key,
                                    const std::string& text);

// --key=value and "--key value".  INVALID_ARGUMENT for an unknown key (with
// the nearest one), a key given twice, or a word that is no flag.
absl::StatusOr<DaemonSettings> ParseArguments(
    const std::vector<std::string>& arguments);
// Lines "key: value" or "key = value"; "#" begins a comment.  Errors name
// file and line.
absl::StatusOr<DaemonSettings> ParseConfigFile(const std::string& text,
                                               const std::string& path);

// Values of `settings` over the defaults that `environment` gives
// (XDG_STATE_HOME, XDG_RUNTIME_DIR, XDG_CACHE_HOME, HOME, ROUNDHOUSE_PYTHON,
// HF_HUB_CACHE, HF_HOME).
// `program` is this executable's real path: the worker and the dataset helper
// are looked for beside it.
absl::StatusOr<DaemonOptions> MakeDaemonOptions(
    const DaemonSettings& settings,
    const std::map<std::string, std::string>& environment,
    const std::string& program);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DAEMON_OPTIONS_H_
