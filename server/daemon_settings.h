// What is written for roundhoused: flags, and a config file with the same keys.
// A flag counts before the file.
//
// Pure, but for ReadDaemonSettings, which reads the file.  Thread-safe.
#ifndef ROUNDHOUSE_SERVER_DAEMON_SETTINGS_H_
#define ROUNDHOUSE_SERVER_DAEMON_SETTINGS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roundhouse {

struct WrittenSetting {
  std::string value;  // "8GiB"
  std::string where;  // "daemon.conf:3"; "": a flag
};
// By key, with dashes: "host-memory".
using DaemonSettings = std::map<std::string, WrittenSetting>;

// One setting of --help.
struct SettingHelp {
  const char* key;
  const char* value_name;
  const char* default_text;
  const char* meaning;
};
const std::vector<SettingHelp>& DaemonSettingsHelp();
// Each of them with its default, in lines of at most 80 columns.
std::string DaemonHelpText();

// Flags as base/flags.h reads them, each at most once, with dashes or
// underscores.  INVALID_ARGUMENT names the flag (an unknown one with the
// nearest), or the word that is no flag.
absl::StatusOr<DaemonSettings> ParseArguments(
    const std::vector<std::string>& arguments);
// Lines "key: value" or "key = value"; "#" begins a comment.  INVALID_ARGUMENT
// names file and line: an unknown key (with the nearest), a key given twice,
// `config` itself, or a line without a key.
absl::StatusOr<DaemonSettings> ParseConfigFile(const std::string& text,
                                               const std::string& path);
// Flags, and below them what the file that --config names has.  Errors of both;
// INVALID_ARGUMENT with the reason where the file can't be read or is longer
// than 1 MiB.
absl::StatusOr<DaemonSettings> ReadDaemonSettings(
    const std::vector<std::string>& arguments);
// A refusal that begins with "--KEY", behind file and line where a config file
// gave KEY; other statuses as they are.
absl::Status AtItsLine(const absl::Status& status,
                       const DaemonSettings& settings);

}  // namespace roundhouse

#endif  // ROUNDHOUSE_SERVER_DAEMON_SETTINGS_H_
