#include "client/tls/logins.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"
#include "base/status.h"
#include "base/token_text.h"
#include "client/files.h"

namespace roundhouse::client {
namespace {

constexpr char kHead[] =
    "# Written by roundhouse login.  Whoever has this file can call as you.\n";
constexpr char kVouchedFor[] = "ca";
constexpr char kNoToken[] = "-";
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

absl::StatusOr<Login> ParseLine(absl::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (words.size() != 3) {
    return absl::InvalidArgumentError("is not \"HOST:PORT FINGERPRINT TOKEN\"");
  }
  ASSIGN_OR_RETURN(const HostPort server, ParseHostPort(words[0]));
  Login login{.server = server.Text()};
  if (words[1] != kVouchedFor) {
    if (!IsFingerprint(words[1])) {
      return absl::InvalidArgumentError("its second word is no fingerprint");
    }
    login.fingerprint = words[1];
  }
  if (words[2] != kNoToken) {
    if (!IsTokenText(words[2])) {
      return absl::InvalidArgumentError("its third word is no token");
    }
    login.token = words[2];
  }
  return login;
}

}  // namespace

bool IsFingerprint(const std::string& text) {
  absl::string_view rest = text;
  std::string hash;
  return absl::ConsumePrefix(&rest, "SHA256:") && rest.size() == 43 &&
         absl::Base64Unescape(absl::StrCat(rest, "="), &hash) &&
         hash.size() == 32;
}

const Login* LoginOf(const Logins& logins, const std::string& server) {
  const auto found =
      std::find_if(logins.begin(), logins.end(),
                   [&](const Login& login) { return login.server == server; });
  return found == logins.end() ? nullptr : &*found;
}

const Login* CurrentLogin(const Logins& logins) {
  const auto found =
      std::find_if(logins.begin(), logins.end(),
                   [](const Login& login) { return !login.token.empty(); });
  return found == logins.end() ? nullptr : &*found;
}

void PutLogin(const Login& login, Logins* logins) {
  const Login copy = login;
  std::erase_if(*logins, [&copy](const Login& other) {
    return other.server == copy.server;
  });
  logins->insert(logins->begin(), copy);
  if (logins->size() > kMaxLogins) logins->resize(kMaxLogins);
}

absl::StatusOr<Logins> ParseLogins(const std::string& path,
                                   const std::string& text) {
  Logins logins;
  int number = 0;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#') continue;
    const absl::StatusOr<Login> login = ParseLine(line);
    std::string wrong;
    if (!login.ok()) {
      wrong = std::string(login.status().message());
    } else if (LoginOf(logins, login->server) != nullptr) {
      wrong = absl::StrCat(login->server, " is there a second time");
    } else if (logins.size() >= kMaxLogins) {
      wrong = absl::StrCat(kMaxLogins, " servers at most");
    }
    if (!wrong.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", wrong,
                       "; remove the line and use roundhouse login"));
    }
    logins.push_back(*login);
  }
  return logins;
}

std::string LoginsText(const Logins& logins) {
  std::string text = kHead;
  for (const Login& login : logins) {
    absl::StrAppend(&text, login.server, " ",
                    login.fingerprint.empty() ? kVouchedFor : login.fingerprint,
                    " ", login.token.empty() ? kNoToken : login.token, "\n");
  }
  return text;
}

absl::StatusOr<Logins> ReadLogins(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & kOthers) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": others may read the tokens in it; chmod 600 ",
                     path, ", and make new tokens if others did"));
  }
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxLoginsBytes);
  if (absl::IsNotFound(text.status())) return Logins();
  RETURN_IF_ERROR(text.status());
  return ParseLogins(path, *text);
}

absl::Status WriteLogins(const std::string& path, const Logins& logins) {
  return WritePrivateFile(path, LoginsText(logins));
}

}  // namespace roundhouse::client
