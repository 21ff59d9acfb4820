#include "server/daemon_options.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/byte_size.h"
#include "base/flags.h"
#include "base/path_exists.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxRunningJobs = 16;
constexpr int kMaxDatasetProcesses = 64;  // as prepare_processes.py has it
constexpr int kUsualDatasetProcesses = 8;
constexpr int kMaxProbeSeconds = 600;

absl::Status Bad(const std::string& key, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--", key, ": ", what));
}

// Says what was wanted and what was given.
absl::Status BadValue(const std::string& key, const std::string& want,
                      const std::string& got) {
  return Bad(key, absl::StrCat("want ", want, "; got ", QuotedValue(got)));
}

// "cpu:4" or "none".
absl::StatusOr<int> ParseCpuDevices(const std::string& text) {
  if (text == "none") return 0;
  int count = 0;
  if (!absl::StartsWith(text, "cpu:") ||
      !absl::SimpleAtoi(text.substr(4), &count) || count < 1 ||
      count > kMaxDevices) {
    return BadValue("devices",
                    absl::StrCat("cpu:N with N from 1 to ", kMaxDevices,
                                 ", cuda, cuda:LIST or none"),
                    text);
  }
  return count;
}

absl::StatusOr<PeerChoice> ParsePeers(const std::string& text) {
  if (text == "auto") return PeerChoice::kAuto;
  if (text == "on") return PeerChoice::kOn;
  if (text == "off") return PeerChoice::kOff;
  return BadValue("peers", "auto, on or off", text);
}

absl::StatusOr<bool> ParseRealtime(const std::string& text) {
  if (text == "auto") return true;
  if (text == "off") return false;
  return BadValue("realtime", "auto or off", text);
}

absl::StatusOr<YieldOptions::Choice> ParseYield(const std::string& text) {
  if (text == "auto") return YieldOptions::Choice::kAuto;
  if (text == "off") return YieldOptions::Choice::kOff;
  return BadValue("yield", "auto or off", text);
}

absl::StatusOr<int> ParseCount(const std::string& key, const std::string& text,
                               int limit) {
  int count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 || count > limit) {
    return BadValue(key, absl::StrCat("a number from 1 to ", limit), text);
  }
  return count;
}

absl::StatusOr<uint64_t> ParseBytes(const std::string& key,
                                    const std::string& text) {
  const absl::StatusOr<int64_t> bytes = ParseByteSize(text);
  if (!bytes.ok()) return BadValue(key, "bytes like 8GiB", text);
  return static_cast<uint64_t>(*bytes);
}

// "0=slot.started:3;5=host.chunk.ready:1": worker index = point of its first
// process; the same index again is its second process.
absl::StatusOr<std::map<std::string, std::deque<std::string>>> ParseKills(
    const std::string& text) {
  std::map<std::string, std::deque<std::string>> kills;
  for (const absl::string_view item :
       absl::StrSplit(text, ';', absl::SkipEmpty())) {
    const std::vector<std::string> pair = absl::StrSplit(item, '=');
    if (pair.size() != 2) {
      return Bad("worker-kill-at", "want WORKER=POINT:COUNT;...");
    }
    kills[pair[0]].push_back(pair[1]);
  }
  return kills;
}

// "vision=/srv/vision,speech=/srv/speech".
absl::Status ParseOwnedRoots(RootOwner::Kind kind, const std::string& text,
                             std::vector<OwnedRoot>* roots) {
  for (const absl::string_view item :
       absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (pair.first.empty() || pair.second.empty() || pair.second[0] != '/') {
      return BadValue(RootFlag(kind) + 2, "NAME=/PATH[,NAME=/PATH]",
                      std::string(item));
    }
    roots->push_back(
        {{kind, std::string(pair.first)}, std::string(pair.second)});
  }
  return absl::OkStatus();
}

std::string Lookup(const std::map<std::string, std::string>& environment,
                   const std::string& name, const std::string& otherwise) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? otherwise
                                                             : found->second;
}

// Beside the executable, or among a Bazel binary's runfiles.
std::string FindBeside(const std::string& program, const std::string& installed,
                       const std::string& in_tree) {
  const std::string runfiles = program + ".runfiles/roundhouse/" + in_tree;
  if (PathExists(runfiles)) return runfiles;
  return (std::filesystem::path(program).parent_path() / installed).string();
}

class Settings {
 public:
  explicit Settings(const DaemonSettings& settings) : settings_(settings) {}
  bool Has(const std::string& key) const { return settings_.count(key) != 0; }
  std::string Get(const std::string& key, const std::string& otherwise) const {
    const auto found = settings_.find(key);
    return found == settings_.end() ? otherwise : found->second.value;
  }

 private:
  const DaemonSettings& settings_;
};

absl::Status FillPlaces(const Settings& settings,
                        const std::map<std::string, std::string>& environment,
                        const std::string& program, DaemonOptions& options) {
  const std::string home = Lookup(environment, "HOME", "/");
  const std::string state =
      Lookup(environment, "XDG_STATE_HOME", home + "/.local/state");
  const std::string runtime =
      Lookup(environment, "XDG_RUNTIME_DIR",
             absl::StrCat("/tmp/roundhouse-", getuid()));
  const std::string socket = environment.count("XDG_RUNTIME_DIR") != 0
                                 ? runtime + "/roundhouse/roundhoused.sock"
                                 : runtime + "/roundhoused.sock";
  const std::string cache =
      Lookup(environment, "XDG_CACHE_HOME", home + "/.cache");
  options.state_dir = settings.Get("state-dir", state + "/roundhouse");
  options.listen = settings.Get("listen", "unix:" + socket);
  options.metrics_listen = settings.Get("metrics-listen", "127.0.0.1:9464");
  options.metrics_token_file = settings.Get("metrics-token-file", "");
  options.data_roots =
      absl::StrSplit(settings.Get("data-root", home), ',', absl::SkipEmpty());
  if (options.data_roots.empty()) return Bad("data-root", "names no folder");
  for (const RootOwner::Kind kind :
       {RootOwner::Kind::kProject, RootOwner::Kind::kUser}) {
    RETURN_IF_ERROR(ParseOwnedRoots(kind, settings.Get(RootFlag(kind) + 2, ""),
                                    &options.owned_roots));
  }
  // Where huggingface_hub keeps it.
  options.hf_cache = settings.Get(
      "hf-cache",
      Lookup(environment, "HF_HUB_CACHE",
             Lookup(environment, "HF_HOME", cache + "/huggingface") + "/hub"));
  options.worker_program = settings.Get(
      "worker-program",
      FindBeside(program, "roundhouse-worker", "worker/roundhouse-worker"));
  options.gpu_probe = settings.Get(
      "gpu-probe", FindBeside(program, "roundhouse-gpu-probe",
                              "worker/probe/roundhouse-gpu-probe"));
  options.prepare_script = settings.Get(
      "prepare-script",
      FindBeside(program, "prepare.py", "server/prepare/prepare.py"));
  options.python =
      settings.Get("python", Lookup(environment, "ROUNDHOUSE_PYTHON",
                                    cache + "/roundhouse/venv/bin/python"));
  return absl::OkStatus();
}

absl::Status FillTls(const Settings& settings, DaemonOptions& options) {
  options.tls = {.certificate = settings.Get("tls-certificate", ""),
                 .key = settings.Get("tls-key", ""),
                 .client_ca = settings.Get("tls-client-ca", "")};
  const std::string listen = settings.Get("listen-tls", "");
  if (listen.empty()) {
    for (const char* key : {"tls-certificate", "tls-key", "tls-client-ca"}) {
      if (settings.Get(key, "").empty()) continue;
      return Bad(key, "is for TLS; --listen-tls=HOST:PORT switches it on");
    }
    return absl::OkStatus();
  }
  const absl::StatusOr<HostPort> address = ParseHostPort(listen);
  if (!address.ok()) {
    return Bad("listen-tls", absl::StrCat(QuotedValue(listen), ": ",
                                          address.status().message()));
  }
  options.listen_tls = *address;
  if (options.tls.certificate.empty() != options.tls.key.empty()) {
    const bool no_key = options.tls.key.empty();
    return Bad(no_key ? "tls-certificate" : "tls-key",
               absl::StrCat("needs --", no_key ? "tls-key" : "tls-certificate",
                            " beside it"));
  }
  return absl::OkStatus();
}

absl::Status FillHub(const Settings& settings, DaemonOptions& options) {
  options.hub.token_file = settings.Get("hub-token-file", "");
  const std::string url = settings.Get("hub", "");
  if (url.empty()) {
    if (options.hub.token_file.empty()) return absl::OkStatus();
    return Bad("hub-token-file", "is for a hub; --hub=https://HOST names one");
  }
  const absl::StatusOr<HubAddress> address = HubAddress::Parse(url);
  if (!address.ok()) {
    return Bad("hub", absl::StrCat(QuotedValue(url), ": ",
                                   address.status().message()));
  }
  options.hub.address = *address;
  return absl::OkStatus();
}

absl::Status FillDevices(const Settings& settings, DaemonOptions& options) {
  const std::string devices = settings.Get("devices", "cpu:4");
  if (absl::StartsWith(devices, "cuda")) {
    ASSIGN_OR_RETURN(options.gpus, ParseGpuRequest(devices));
    options.device_count = 0;
  } else {
    ASSIGN_OR_RETURN(options.device_count, ParseCpuDevices(devices));
  }
  if (options.gpus.has_value() && !settings.Has("device-memory")) {
    options.device_memory_bytes = 0;
  } else {
    ASSIGN_OR_RETURN(
        options.device_memory_bytes,
        ParseBytes("device-memory", settings.Get("device-memory", "1GiB")));
  }
  ASSIGN_OR_RETURN(
      const int seconds,
      ParseCount("gpu-probe-seconds", settings.Get("gpu-probe-seconds", "60"),
                 kMaxProbeSeconds));
  options.gpu_probe_limit = absl::Seconds(seconds);
  ASSIGN_OR_RETURN(options.peers, ParsePeers(settings.Get("peers", "auto")));
  ASSIGN_OR_RETURN(options.realtime,
                   ParseRealtime(settings.Get("realtime", "auto")));
  return absl::OkStatus();
}

absl::Status FillYield(const Settings& settings, DaemonOptions& options) {
  ASSIGN_OR_RETURN(options.yield.choice,
                   ParseYield(settings.Get("yield", "off")));
  if (options.yield.choice == YieldOptions::Choice::kOff ||
      !settings.Has("yield-test-seconds")) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      const int seconds,
      ParseCount("yield-test-seconds", settings.Get("yield-test-seconds", ""),
                 kMaxProbeSeconds));
  options.yield.back_after = absl::Seconds(seconds);
  options.yield.choice = YieldOptions::Choice::kPretended;
  return absl::OkStatus();
}

absl::Status FillHost(const Settings& settings, DaemonOptions& options) {
  ASSIGN_OR_RETURN(
      options.device_threads,
      ParseCount("device-threads", settings.Get("device-threads", "1"),
                 kMaxThreads));
  ASSIGN_OR_RETURN(options.host_threads,
                   ParseCount("host-threads", settings.Get("host-threads", "1"),
                              kMaxThreads));
  ASSIGN_OR_RETURN(
      options.max_running_jobs,
      ParseCount("max-running-jobs", settings.Get("max-running-jobs", "16"),
                 kMaxRunningJobs));
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  ASSIGN_OR_RETURN(
      options.dataset_processes,
      ParseCount("dataset-processes",
                 settings.Get("dataset-processes",
                              absl::StrCat(std::clamp(cores, 1,
                                                      kUsualDatasetProcesses))),
                 kMaxDatasetProcesses));
  ASSIGN_OR_RETURN(
      options.host_memory_bytes,
      ParseBytes("host-memory", settings.Get("host-memory", "8GiB")));
  const std::string link = settings.Get("link-gbps", "0");
  if (!absl::SimpleAtod(link, &options.link_gbps) ||
      !(options.link_gbps >= 0) || !std::isfinite(options.link_gbps)) {
    return BadValue("link-gbps", "a number", link);
  }
  ASSIGN_OR_RETURN(options.worker_kill_at,
                   ParseKills(settings.Get("worker-kill-at", "")));
  options.kill_at = settings.Get("kill-at", "");
  options.file_fault_at = settings.Get("file-fault-at", "");
  options.sample_log = settings.Get("sample-log", "");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DaemonOptions> MakeDaemonOptions(
    const DaemonSettings& written,
    const std::map<std::string, std::string>& environment,
    const std::string& program) {
  const Settings settings(written);
  DaemonOptions options;
  absl::Status status = FillPlaces(settings, environment, program, options);
  if (status.ok()) status = FillTls(settings, options);
  if (status.ok()) status = FillHub(settings, options);
  if (status.ok()) status = FillDevices(settings, options);
  if (status.ok()) status = FillYield(settings, options);
  if (status.ok()) status = FillHost(settings, options);
  if (!status.ok()) return AtItsLine(status, written);
  return options;
}

}  // namespace roundhouse
