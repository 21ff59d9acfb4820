#include "client/server_address.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"
#include "base/status.h"
#include "base/token_text.h"
#include "client/files.h"
#include "client/tls/certificate.h"
#include "client/tls/logins.h"

namespace roundhouse::client {
namespace {

constexpr char kScheme[] = "unix:";
constexpr char kSocketName[] = "roundhoused.sock";

absl::Status CheckSocket(const ServerAddress& address) {
  const std::string& target = address.target;
  if (target.compare(0, sizeof(kScheme) - 1, kScheme) != 0 ||
      target.size() == sizeof(kScheme) - 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.source, ": \"", target,
                     "\" is not a server address; it is unix:PATH, the "
                     "socket that roundhoused --listen names, or "
                     "tls:HOST:PORT, what --listen-tls names"));
  }
  const size_t path_bytes = target.size() - (sizeof(kScheme) - 1);
  if (path_bytes > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        address.source, ": the socket path \"", target.substr(5), "\" has ",
        path_bytes, " bytes, the system's limit is ", kMaxSocketPathBytes));
  }
  return absl::OkStatus();
}

std::optional<std::string> NonEmpty(const Environment& environment,
                                    const std::string& name) {
  std::optional<std::string> value = environment.variable(name);
  return value.has_value() && !value->empty() ? value : std::nullopt;
}

std::string DefaultTarget(const Environment& environment) {
  if (auto runtime_dir = NonEmpty(environment, "XDG_RUNTIME_DIR")) {
    return absl::StrCat(kScheme, *runtime_dir, "/roundhouse/", kSocketName);
  }
  return absl::StrCat(kScheme, "/tmp/roundhouse-", getuid(), "/", kSocketName);
}

// A file of the client's config folder; "": there is no home.
std::string ConfigPath(const Environment& environment,
                       const std::string& name) {
  if (auto config = NonEmpty(environment, "XDG_CONFIG_HOME")) {
    return absl::StrCat(*config, "/roundhouse/", name);
  }
  if (auto home = NonEmpty(environment, "HOME")) {
    return absl::StrCat(*home, "/.config/roundhouse/", name);
  }
  return "";
}

struct ConfigValue {
  std::string value;
  std::string where;  // "FILE:LINE"
};
using Config = std::map<std::string, ConfigValue>;  // by key

constexpr const char* kKeys[] = {"server", "client-certificate", "client-key"};

absl::StatusOr<Config> ParseConfig(const std::string& path,
                                   const std::string& text) {
  Config found;
  std::istringstream lines(text);
  std::string raw;
  for (int number = 1; std::getline(lines, raw); ++number) {
    const std::string line(absl::StripAsciiWhitespace(raw));
    if (line.empty() || line[0] == '#') {
      continue;
    }
    const std::string where = absl::StrCat(path, ":", number);
    const size_t colon = line.find(':');
    if (colon == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": \"", line, "\" is not \"key: value\""));
    }
    const std::string key(absl::StripAsciiWhitespace(line.substr(0, colon)));
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": unknown key \"", key, "\"; the keys are ",
                       absl::StrJoin(kKeys, ", ")));
    }
    const ConfigValue value{
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1))), where};
    if (!found.emplace(key, value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", key, " is given a second time"));
    }
  }
  return found;
}

absl::StatusOr<Config> ReadConfig(const std::string& path) {
  if (path.empty()) return Config();
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxConfigFileBytes);
  if (absl::IsNotFound(text.status())) return Config();
  RETURN_IF_ERROR(text.status());
  return ParseConfig(path, *text);
}

absl::StatusOr<Logins> KnownLogins(const Environment& environment) {
  const std::string path = LoginsPath(environment);
  if (path.empty()) return Logins();
  return ReadLogins(path);
}

absl::StatusOr<std::string> ReadNamed(const Config& config,
                                      const std::string& key) {
  const auto found = config.find(key);
  if (found == config.end()) return std::string();
  const auto text = ReadSmallFile(found->second.value, kMaxConfigFileBytes);
  if (text.ok()) return *text;
  return absl::InvalidArgumentError(absl::StrCat(
      found->second.where, ": ", key, ": ", text.status().message()));
}

// Whether the environment speaks of this server: of the one that it names, or
// of any where it names none.  What it knows of one is not for another.
bool VariablesAreOf(const Environment& environment, const TlsAccess& access) {
  const auto named = NonEmpty(environment, "ROUNDHOUSE_SERVER");
  if (!named.has_value()) return true;
  if (!absl::StartsWith(*named, kTlsScheme)) return false;
  const auto server = TlsServer(*named, environment);
  return server.ok() && server->tls.server == access.server;
}

// What the environment says of a server beside the login, or in its place.
absl::Status FillFromVariables(const Environment& environment,
                               TlsAccess* access) {
  if (!VariablesAreOf(environment, *access)) return absl::OkStatus();
  if (auto fingerprint = NonEmpty(environment, "ROUNDHOUSE_FINGERPRINT")) {
    if (!IsFingerprint(*fingerprint)) {
      return absl::InvalidArgumentError(
          "ROUNDHOUSE_FINGERPRINT is no fingerprint: SHA256: and 43 "
          "characters, as the server's log shows it");
    }
    access->fingerprint = *fingerprint;
  }
  if (auto token = NonEmpty(environment, "ROUNDHOUSE_TOKEN")) {
    if (!IsTokenText(*token)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "ROUNDHOUSE_TOKEN is no token: it begins with ", kTokenPrefix,
          " and has ", kTokenTextBytes, " characters; copy it whole"));
    }
    access->token = *token;
  }
  return absl::OkStatus();
}

absl::StatusOr<ServerAddress> Choose(const std::string& flag,
                                     const Environment& environment,
                                     const std::string& system_config) {
  if (!flag.empty()) {
    return ServerAddress{flag, "--server"};
  }
  if (auto variable = NonEmpty(environment, "ROUNDHOUSE_SERVER")) {
    return ServerAddress{*variable, "ROUNDHOUSE_SERVER"};
  }
  ASSIGN_OR_RETURN(const Config config,
                   ReadConfig(ConfigPath(environment, "config")));
  const auto server = config.find("server");
  if (server != config.end()) {
    return ServerAddress{server->second.value, server->second.where};
  }
  ASSIGN_OR_RETURN(const Logins logins, KnownLogins(environment));
  if (const Login* const login = CurrentLogin(logins)) {
    return ServerAddress{absl::StrCat(kTlsScheme, login->server), "login"};
  }
  ASSIGN_OR_RETURN(const Config system, ReadConfig(system_config));
  const auto machines = system.find("server");
  if (machines != system.end()) {
    return ServerAddress{machines->second.value, machines->second.where};
  }
  return ServerAddress{DefaultTarget(environment), "default"};
}

}  // namespace

absl::StatusOr<ServerAddress> FindServer(const std::string& flag,
                                         const Environment& environment,
                                         const std::string& system_config) {
  ASSIGN_OR_RETURN(ServerAddress address,
                   Choose(flag, environment, system_config));
  if (!absl::StartsWith(address.target, kTlsScheme)) {
    RETURN_IF_ERROR(CheckSocket(address));
    return address;
  }
  auto known = TlsServer(address.target, environment);
  if (!known.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.source, ": ", known.status().message()));
  }
  known->source = address.source;
  ASSIGN_OR_RETURN(const Logins logins, KnownLogins(environment));
  if (const Login* const login = LoginOf(logins, known->tls.server)) {
    known->tls.fingerprint = login->fingerprint;
    known->tls.token = login->token;
  }
  RETURN_IF_ERROR(FillFromVariables(environment, &known->tls));
  return known;
}

std::string LoginsPath(const Environment& environment) {
  return ConfigPath(environment, "logins");
}

absl::StatusOr<ServerAddress> TlsServer(const std::string& address,
                                        const Environment& environment) {
  const auto server = ParseHostPort(absl::StripPrefix(address, kTlsScheme));
  if (!server.ok() || server->port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\": ",
        server.ok() ? "the port is missing" : server.status().message()));
  }
  ServerAddress out{absl::StrCat(kTlsScheme, server->Text()), "--server"};
  ASSIGN_OR_RETURN(const Config config,
                   ReadConfig(ConfigPath(environment, "config")));
  out.tls.server = server->Text();
  out.tls.roots = TrustedRoots(environment);
  ASSIGN_OR_RETURN(out.tls.certificate,
                   ReadNamed(config, "client-certificate"));
  ASSIGN_OR_RETURN(out.tls.key, ReadNamed(config, "client-key"));
  if (out.tls.certificate.empty() != out.tls.key.empty()) {
    return absl::InvalidArgumentError(
        "client-certificate and client-key of the config file go together");
  }
  return out;
}

}  // namespace roundhouse::client
