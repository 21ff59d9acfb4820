#include "client/server_address.h"

#include <unistd.h>

#include <optional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/files.h"

namespace roundhouse::client {
namespace {

constexpr char kScheme[] = "unix:";
constexpr char kSocketName[] = "roundhoused.sock";

absl::Status CheckAddress(const ServerAddress& address) {
  const std::string& target = address.target;
  if (target.compare(0, sizeof(kScheme) - 1, kScheme) != 0 ||
      target.size() == sizeof(kScheme) - 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.source, ": \"", target,
                     "\" is not a server address; it is unix:PATH, the "
                     "socket that roundhoused --listen names"));
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

std::string ConfigPath(const Environment& environment) {
  if (auto config = NonEmpty(environment, "XDG_CONFIG_HOME")) {
    return *config + "/roundhouse/config";
  }
  if (auto home = NonEmpty(environment, "HOME")) {
    return *home + "/.config/roundhouse/config";
  }
  return "";
}

absl::StatusOr<std::optional<ServerAddress>> ParseConfig(
    const std::string& path, const std::string& text) {
  std::optional<ServerAddress> found;
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
    if (key != "server") {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": unknown key \"", key, "\"; the only key is server"));
    }
    if (found.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": server is given a second time"));
    }
    found = ServerAddress{
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1))), where};
  }
  return found;
}

absl::StatusOr<std::optional<ServerAddress>> FromConfig(
    const std::string& path) {
  if (path.empty()) {
    return std::optional<ServerAddress>();
  }
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxConfigFileBytes);
  if (absl::IsNotFound(text.status())) {
    return std::optional<ServerAddress>();
  }
  RETURN_IF_ERROR(text.status());
  return ParseConfig(path, *text);
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
  ASSIGN_OR_RETURN(std::optional<ServerAddress> config,
                   FromConfig(ConfigPath(environment)));
  if (!config.has_value()) {
    ASSIGN_OR_RETURN(config, FromConfig(system_config));
  }
  return config.has_value()
             ? *config
             : ServerAddress{DefaultTarget(environment), "default"};
}

}  // namespace

absl::StatusOr<ServerAddress> FindServer(const std::string& flag,
                                         const Environment& environment,
                                         const std::string& system_config) {
  ASSIGN_OR_RETURN(ServerAddress address,
                   Choose(flag, environment, system_config));
  RETURN_IF_ERROR(CheckAddress(address));
  return address;
}

}  // namespace roundhouse::client
