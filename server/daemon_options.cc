#include "server/daemon_options.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"
#include "base/path_exists.h"
#include "base/status.h"
#include "base/text_width.h"

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

absl::Status CheckKey(const std::string& key, const std::string& where) {
  std::vector<std::string> known;
  for (const SettingHelp& help : DaemonSettingsHelp()) {
    if (key == help.key) return absl::OkStatus();
    known.push_back(help.key);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      where, "unknown setting \"", key, "\"", DidYouMean(key, known)));
}

// "cpu:4" or "none".
absl::StatusOr<int> ParseCpuDevices(const std::string& text) {
  if (text == "none") return 0;
  int count = 0;
  if (!absl::StartsWith(text, "cpu:") ||
      !absl::SimpleAtoi(text.substr(4), &count) || count < 1 ||
      count > kMaxDevices) {
    return Bad("devices",
               absl::StrCat("want cpu:N with N from 1 to ", kMaxDevices,
                            ", cuda, cuda:LIST or none; got \"", text, "\""));
  }
  return count;
}

absl::StatusOr<PeerChoice> ParsePeers(const std::string& text) {
  if (text == "auto") return PeerChoice::kAuto;
  if (text == "on") return PeerChoice::kOn;
  if (text == "off") return PeerChoice::kOff;
  return Bad("peers", absl::StrCat("want auto, on or off; got \"", text, "\""));
}

absl::StatusOr<bool> ParseRealtime(const std::string& text) {
  if (text == "auto") return true;
  if (text == "off") return false;
  return Bad("realtime", absl::StrCat("want auto or off; got \"", text, "\""));
}

absl::StatusOr<int> ParseCount(const std::string& key, const std::string& text,
                               int limit) {
  int count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 || count > limit) {
    return Bad(key, absl::StrCat("want a number from 1 to ", limit, "; got \"",
                                 text, "\""));
  }
  return count;
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
    return found == settings_.end() ? otherwise : found->second;
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
  options.data_roots =
      absl::StrSplit(settings.Get("data-root", home), ',', absl::SkipEmpty());
  if (options.data_roots.empty()) return Bad("data-root", "names no folder");
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
      FindBeside(program, "prepare.py", "server/dataset/prepare.py"));
  options.python =
      settings.Get("python", Lookup(environment, "ROUNDHOUSE_PYTHON",
                                    cache + "/roundhouse/venv/bin/python"));
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

}  // namespace

const std::vector<SettingHelp>& DaemonSettingsHelp() {
  static const auto& help = *new std::vector<SettingHelp>{
      {"config", "", "a file with lines \"key: value\" of these settings"},
      {"state-dir", "XDG state directory/roundhouse",
       "jobs, checkpoints, outputs; one daemon at a time"},
      {"devices", "cpu:4",
       "cpu:N worker processes; cuda: every GPU that can be used, cuda:0,2-5: "
       "these; or none"},
      {"device-threads", "1", "compute threads per device; part of the bits"},
      {"device-memory", "1GiB; with GPUs what they have free but 2 GiB",
       "memory of each device"},
      {"host-memory", "8GiB", "the host arena: all training state"},
      {"host-threads", "1", "threads of the optimizer and the reductions"},
      {"max-running-jobs", "2",
       "jobs that share the devices at a time; others wait in QUEUED"},
      {"listen", "unix socket in the XDG runtime directory",
       "unix:PATH; there is no TCP listener"},
      {"metrics-listen", "127.0.0.1:9464",
       "metrics and the status page, on loopback; empty: none"},
      {"data-root", "the home directory",
       "folders, comma-separated, that job files may name files in"},
      {"hf-cache", "HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub",
       "the Hugging Face cache whose models jobs may name by id; empty: none"},
      {"link-gbps", "0",
       "throttle of each device's link per direction, 10^9 bit/s; 0: none"},
      {"peers", "auto",
       "on or off: whether devices add up the sums of wide slots between them; "
       "auto: GPUs that all reach each other's memory do"},
      {"realtime", "auto",
       "auto: threads that pass slots on go before threads that compute, where "
       "the kernel lets them; off: they do not"},
      {"worker-program", "beside this program", "roundhouse-worker"},
      {"gpu-probe", "beside this program", "roundhouse-gpu-probe"},
      {"gpu-probe-seconds", "60",
       "how long the NVIDIA driver may take to answer"},
      {"prepare-script", "beside this program", "the dataset helper"},
      {"dataset-processes", "one a core, 8 at most",
       "that tokenise a dataset, at low priority"},
      {"python", "the one deploy/install-deps made",
       "interpreter for the dataset helper"},
      {"worker-kill-at", "", "test only: WORKER=POINT:COUNT;..."},
      {"kill-at", "", "test only: POINT:COUNT of the daemon"},
      {"file-fault-at", "",
       "test only: SITE:KIND[:HOWLONG[:AFTER]];..., the disk fails there"},
      {"sample-log", "", "test only: a file for each slot's times"},
  };
  return help;
}

std::string DaemonHelpText() {
  constexpr size_t kColumns = 80;
  size_t width = 0;
  for (const SettingHelp& help : DaemonSettingsHelp()) {
    width = std::max(width, TextWidth(help.key));
  }
  std::string text;
  for (const SettingHelp& help : DaemonSettingsHelp()) {
    std::string left = absl::StrCat("  --", PadWidth(help.key, width + 2));
    const std::string meaning =
        *help.default_text == '\0'
            ? help.meaning
            : absl::StrCat(help.meaning, " [", help.default_text, "]");
    for (const std::string& line : WrapText(meaning, kColumns - left.size())) {
      absl::StrAppend(&text, left, line, "\n");
      left.assign(left.size(), ' ');
    }
  }
  return text;
}

absl::StatusOr<uint64_t> ParseBytes(const std::string& key,
                                    const std::string& text) {
  absl::string_view number = text;
  uint64_t unit = 1;
  const std::pair<const char*, uint64_t> units[] = {{"KiB", uint64_t{1} << 10},
                                                    {"MiB", uint64_t{1} << 20},
                                                    {"GiB", uint64_t{1} << 30},
                                                    {"TiB", uint64_t{1} << 40},
                                                    {"KB", 1000},
                                                    {"MB", 1000000},
                                                    {"GB", 1000000000},
                                                    {"TB", 1000000000000}};
  for (const auto& [suffix, bytes] : units) {
    if (absl::ConsumeSuffix(&number, suffix)) {
      unit = bytes;
      break;
    }
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) ||
      !(value * static_cast<double>(unit) >= 1) ||
      value * static_cast<double>(unit) > 1e15) {
    return Bad(key, absl::StrCat("want bytes like 8GiB; got \"", text, "\""));
  }
  return static_cast<uint64_t>(value * static_cast<double>(unit));
}

absl::StatusOr<DaemonSettings> ParseArguments(
    const std::vector<std::string>& arguments) {
  DaemonSettings settings;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view word = arguments[i];
    if (!absl::ConsumePrefix(&word, "--")) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", arguments[i], "\" is not a flag"));
    }
    const size_t equals = word.find('=');
    std::string key(word.substr(0, equals));
    std::replace(key.begin(), key.end(), '_', '-');
    RETURN_IF_ERROR(CheckKey(key, ""));
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(word.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return Bad(key, "has no value");
    }
    if (!settings.emplace(key, value).second) return Bad(key, "given twice");
  }
  return settings;
}

absl::StatusOr<DaemonSettings> ParseConfigFile(const std::string& text,
                                               const std::string& path) {
  DaemonSettings settings;
  int number = 0;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++number;
    const std::string where = absl::StrCat(path, ":", number, ": ");
    const absl::string_view line =
        absl::StripAsciiWhitespace(raw.substr(0, raw.find('#')));
    if (line.empty()) continue;
    const size_t split = line.find_first_of(":=");
    if (split == absl::string_view::npos) {
      return absl::InvalidArgumentError(where + "want \"key: value\"");
    }
    const std::string key(absl::StripAsciiWhitespace(line.substr(0, split)));
    const std::string value(absl::StripAsciiWhitespace(line.substr(split + 1)));
    RETURN_IF_ERROR(CheckKey(key, where));
    if (!settings.emplace(key, value).second) {
      return absl::InvalidArgumentError(where + key + " is given twice");
    }
  }
  return settings;
}

absl::StatusOr<DaemonOptions> MakeDaemonOptions(
    const DaemonSettings& written,
    const std::map<std::string, std::string>& environment,
    const std::string& program) {
  const Settings settings(written);
  DaemonOptions options;
  RETURN_IF_ERROR(FillPlaces(settings, environment, program, options));
  RETURN_IF_ERROR(FillDevices(settings, options));
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
    return Bad("link-gbps", absl::StrCat("want a number; got \"", link, "\""));
  }
  ASSIGN_OR_RETURN(options.worker_kill_at,
                   ParseKills(settings.Get("worker-kill-at", "")));
  options.kill_at = settings.Get("kill-at", "");
  options.file_fault_at = settings.Get("file-fault-at", "");
  options.sample_log = settings.Get("sample-log", "");
  return options;
}

}  // namespace roundhouse
