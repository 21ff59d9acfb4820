#include "server/daemon_settings.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/flags.h"
#include "base/nearest_name.h"
#include "base/status.h"

namespace roundhouse {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

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
    {"max-running-jobs", "N", "16",
     "the most jobs that share the devices at a time; before that host memory "
     "may be taken; others wait in QUEUED"},
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
    {"yield", "off|auto", "off",
     "auto: a GPU on which another's process computes, or has a tenth of the "
     "memory, is left to it until it has been gone for a minute"},
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
    {"yield-test-seconds", "SECONDS", "",
     "test only: of --yield=auto, in place of a minute; CPU devices count, "
     "too, "
     "and process ids are as they are"},
    {"sample-log", "FILE", "", "test only: a file for each slot's times"},
};

absl::Status BadConfig(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--config: ", what));
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
    return BadConfig(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxConfigBytes) {
    return BadConfig(
        absl::StrCat(path, " is longer than ", kMaxConfigBytes, " bytes"));
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

}  // namespace roundhouse
