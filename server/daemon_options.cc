#include "server/daemon_options.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/byte_size.h"
#include "base/flags.h"
#include "base/nearest_name.h"
#include "base/path_exists.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxRunningJobs = 16;
constexpr int kMaxDatasetProcesses = 64;  // as prepare_processes.py has it
constexpr int kUsualDatasetProcesses = 8;
constexpr int kMaxProbeSeconds = 600;
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

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
      ParseCount("max-running-jobs", settings.Get("max-running-jobs", "2"),
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

absl::Status CheckKey(const std::string& key, const std::string& where) {
  if (key == "config") {
    return absl::InvalidArgumentError(
        where + ": config: a config file cannot name another one");
  }
  std::vector<std::string> known;
  for (const SettingHelp& help : DaemonSettingsHelp()) {
    if (key == help.key) return absl::OkStatus();
    known.push_back(help.key);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": unknown setting ", QuotedValue(key), DidYouMean(key, known)));
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return Bad("config",
               absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxConfigBytes) {
    return Bad("config", absl::StrCat(path, " is longer than ", kMaxConfigBytes,
                                      " bytes"));
  }
  return text;
}

using GivenFlags = std::map<std::string, std::optional<std::string>>;

// Each setting is a flag, and its value goes to `given`.
FlagSet Flags(GivenFlags* given) {
  FlagSet flags;
  for (const SettingHelp& help : DaemonSettingsHelp()) {
    const std::string meaning =
        *help.default_text == '\0'
            ? help.meaning
            : absl::StrCat(help.meaning, " [", help.default_text, "]");
    flags.AddOnce(help.key, help.value_name, &(*given)[help.key], meaning);
  }
  return flags;
}

}  // namespace

namespace {

// In the order of --help.
constexpr SettingHelp kSettings[] = {
    {"config", "FILE", "",
     "a file with lines \"key: value\" of these settings"},
    {"state-dir", "DIR", "XDG state directory/roundhouse",
     "jobs, checkpoints, outputs; one daemon at a time"},
    {"devices", "DEVICES", "cpu:4",
     "cpu:N worker processes; cuda: every GPU that can be used, cuda:0,2-5: "
     "these; or none"},
    {"device-threads", "N", "1",
     "compute threads per device; part of the bits"},
    {"device-memory", "BYTES", "1GiB; with GPUs what they have free but 2 GiB",
     "memory of each device"},
    {"host-memory", "BYTES", "8GiB", "the host arena: all training state"},
    {"host-threads", "N", "1", "threads of the optimizer and the reductions"},
    {"max-running-jobs", "N", "2",
     "jobs that share the devices at a time; others wait in QUEUED"},
    {"listen", "unix:PATH", "unix socket in the XDG runtime directory",
     "the server's own socket"},
    {"listen-tls", "HOST:PORT", "none",
     "an address for calls over the network, with TLS and tokens; an IPv6 "
     "address in brackets, [::] for all"},
    {"tls-certificate", "FILE", "one that the daemon makes",
     "PEM, with those above it; a renewed one needs no restart"},
    {"tls-key", "FILE", "", "its private key, PEM"},
    {"tls-client-ca", "FILE", "none",
     "PEM; TLS clients need a certificate of one of these, besides a token"},
    {"metrics-listen", "HOST:PORT", "127.0.0.1:9464",
     "metrics and the status page, on loopback; empty: none"},
    {"metrics-token-file", "FILE", "none: whoever is on this machine may look",
     "a file with a token that metrics and the status page ask for"},
    {"data-root", "DIR[,DIR]", "the home directory",
     "folders, comma-separated, that job files may name files in"},
    {"project-root", "NAME=DIR[,NAME=DIR]", "",
     "the same, of which each is for the members of a project alone"},
    {"user-root", "NAME=DIR[,NAME=DIR]", "",
     "the same, of which each is for a user alone"},
    {"hf-cache", "DIR", "HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub",
     "the Hugging Face cache whose models jobs may name by id; empty: none"},
    {"hub", "URL", "none",
     "https://HOST of a model hub with Hugging Face's API; `roundhouse model "
     "pull` fetches from there, and the daemon connects to nowhere without"},
    {"hub-token-file", "FILE", "none",
     "a token for the hub, for models that are gated or private; others must "
     "not be able to read the file"},
    {"link-gbps", "N", "0",
     "throttle of each device's link per direction, 10^9 bit/s; 0: none"},
    {"peers", "auto|on|off", "auto",
     "on or off: whether devices add up the sums of wide slots between them; "
     "auto: GPUs that all reach each other's memory do"},
    {"realtime", "auto|off", "auto",
     "auto: threads that pass slots on go before threads that compute, where "
     "the kernel lets them; off: they do not"},
    {"worker-program", "FILE", "beside this program", "roundhouse-worker"},
    {"gpu-probe", "FILE", "beside this program", "roundhouse-gpu-probe"},
    {"gpu-probe-seconds", "SECONDS", "60",
     "how long the NVIDIA driver may take to answer"},
    {"prepare-script", "FILE", "beside this program", "the dataset helper"},
    {"dataset-processes", "N", "one a core, 8 at most",
     "that tokenise a dataset, at low priority"},
    {"python", "FILE", "the one deploy/install-deps made",
     "interpreter for the dataset helper"},
    {"worker-kill-at", "POINTS", "", "test only: WORKER=POINT:COUNT;..."},
    {"kill-at", "POINT", "", "test only: POINT:COUNT of the daemon"},
    {"file-fault-at", "FAULTS", "",
     "test only: SITE:KIND[:HOWLONG[:AFTER]];..., the disk fails there"},
    {"sample-log", "FILE", "", "test only: a file for each slot's times"},
};

}  // namespace

const std::vector<SettingHelp>& DaemonSettingsHelp() {
  static const auto& help =
      *new std::vector<SettingHelp>(std::begin(kSettings), std::end(kSettings));
  return help;
}

std::string DaemonHelpText() {
  GivenFlags given;
  return Flags(&given).Help();
}

absl::StatusOr<DaemonSettings> ParseArguments(
    const std::vector<std::string>& arguments) {
  GivenFlags given;
  ASSIGN_OR_RETURN(const std::vector<std::string> rest,
                   Flags(&given).Parse(arguments));
  if (!rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuotedValue(rest.front()), " is not a flag"));
  }
  DaemonSettings settings;
  for (const auto& [key, value] : given) {
    if (value.has_value()) settings[key] = {*value, ""};
  }
  return settings;
}

absl::StatusOr<DaemonSettings> ParseConfigFile(const std::string& text,
                                               const std::string& path) {
  DaemonSettings settings;
  int number = 0;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    const std::string where = absl::StrCat(path, ":", ++number);
    const absl::string_view line =
        absl::StripAsciiWhitespace(raw.substr(0, raw.find('#')));
    if (line.empty()) continue;
    const size_t split = line.find_first_of(":=");
    if (split == absl::string_view::npos) {
      return absl::InvalidArgumentError(where + ": want \"key: value\"");
    }
    const std::string key(absl::StripAsciiWhitespace(line.substr(0, split)));
    const std::string value(absl::StripAsciiWhitespace(line.substr(split + 1)));
    RETURN_IF_ERROR(CheckKey(key, where));
    if (!settings.emplace(key, WrittenSetting{value, where}).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", key, " is given twice"));
    }
  }
  return settings;
}

absl::StatusOr<DaemonSettings> ReadDaemonSettings(
    const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(DaemonSettings settings, ParseArguments(arguments));
  const auto config = settings.find("config");
  if (config == settings.end()) return settings;
  const std::string& path = config->second.value;
  ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  ASSIGN_OR_RETURN(const DaemonSettings from_file, ParseConfigFile(text, path));
  settings.insert(from_file.begin(), from_file.end());  // flags win
  return settings;
}

absl::Status AtItsLine(const absl::Status& status,
                       const DaemonSettings& settings) {
  absl::string_view key = status.message();
  if (!absl::ConsumePrefix(&key, "--")) return status;
  const auto found =
      settings.find(std::string(key.substr(0, key.find_first_of(":= "))));
  if (found == settings.end() || found->second.where.empty()) return status;
  return absl::Status(
      status.code(), absl::StrCat(found->second.where, ": ", status.message()));
}

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
  if (status.ok()) status = FillHost(settings, options);
  if (!status.ok()) return AtItsLine(status, written);
  return options;
}

}  // namespace roundhouse
