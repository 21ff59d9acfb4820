#include "server/hub/hub_token.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/files/descriptor.h"
#include "base/files/whole_io.h"

namespace roundhouse {
namespace {

constexpr size_t kMaxTokenBytes = 4096;
// Its owner writes, a group may read it.
constexpr mode_t kTooOpen = 0037;

absl::Status Bad(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("--hub-token-file: ", path, ": ", what));
}

}  // namespace

absl::StatusOr<std::string> ReadHubToken(const std::string& path) {
  const Descriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info;
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return Bad(path, absl::StrCat("can't be opened: ", std::strerror(errno),
                                  "; the daemon's user must be able to"));
  }
  if (!S_ISREG(info.st_mode)) return Bad(path, "is no file");
  const bool foreign = info.st_uid != 0 && info.st_uid != geteuid();
  if (foreign || (info.st_mode & kTooOpen) != 0) {
    return Bad(path,
               "others may read or change it; make it root's or the daemon's "
               "user's, with chmod 600, or 640 for the daemon's group");
  }
  std::string text;
  const bool whole =
      ReadToEnd([&](char* target,
                    size_t bytes) { return read(file.get(), target, bytes); },
                [&](absl::string_view piece) {
                  text.append(piece.data(), piece.size());
                  return text.size() <= kMaxTokenBytes;
                });
  if (!whole) return Bad(path, std::strerror(errno));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (token.empty() || text.size() > kMaxTokenBytes ||
      !std::all_of(token.begin(), token.end(),
                   [](unsigned char c) { return absl::ascii_isgraph(c); })) {
    return Bad(path, absl::StrCat("want one word of printable ASCII, ",
                                  kMaxTokenBytes, " bytes at most"));
  }
  return std::string(token);
}

}  // namespace roundhouse
