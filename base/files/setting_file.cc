#include "base/files/setting_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/files/descriptor.h"
#include "base/files/whole_io.h"
#include "base/status.h"

namespace roundhouse {
namespace {

// Its owner writes, a group may read it.
constexpr mode_t kTooOpen = 0037;

struct Opened {
  Descriptor file;
  struct stat info = {};
};

absl::StatusOr<Opened> Open(absl::string_view flag, const std::string& path) {
  Opened out{.file = Descriptor(open(
                 path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))};
  if (out.file.get() < 0 || fstat(out.file.get(), &out.info) != 0) {
    return BadSettingFile(
        flag, path,
        absl::StrCat("can't be opened: ", std::strerror(errno),
                     "; the daemon's user must be able to read it"));
  }
  if (!S_ISREG(out.info.st_mode)) {
    return BadSettingFile(flag, path, "is no file");
  }
  return out;
}

absl::StatusOr<std::string> Read(absl::string_view flag,
                                 const std::string& path, const Opened& opened,
                                 size_t most) {
  std::string text;
  const bool whole = ReadToEnd(
      [&opened](char* to, size_t bytes) {
        return read(opened.file.get(), to, bytes);
      },
      [&text, most](absl::string_view piece) {
        absl::StrAppend(&text, piece);
        return text.size() <= most;
      });
  if (!whole) {
    return BadSettingFile(
        flag, path, absl::StrCat("can't be read: ", std::strerror(errno)));
  }
  if (text.size() > most) {
    return BadSettingFile(flag, path,
                          absl::StrCat("is longer than ", most, " bytes"));
  }
  return text;
}

}  // namespace

absl::Status BadSettingFile(absl::string_view flag, absl::string_view path,
                            absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": ", path, ": ", what));
}

absl::StatusOr<std::string> ReadSettingFile(absl::string_view flag,
                                            const std::string& path,
                                            size_t most) {
  ASSIGN_OR_RETURN(const Opened opened, Open(flag, path));
  return Read(flag, path, opened, most);
}

absl::StatusOr<std::string> ReadSecretFile(absl::string_view flag,
                                           const std::string& path,
                                           size_t least) {
  ASSIGN_OR_RETURN(const Opened opened, Open(flag, path));
  const uid_t owner = opened.info.st_uid;
  const bool foreign = owner != 0 && owner != geteuid();
  if (foreign || (opened.info.st_mode & kTooOpen) != 0) {
    return BadSettingFile(
        flag, path,
        "others may read or change it; make it root's or the daemon's user's, "
        "with chmod 600, or 640 for the daemon's group");
  }
  ASSIGN_OR_RETURN(const std::string text,
                   Read(flag, path, opened, kMaxSecretBytes));
  const absl::string_view secret = absl::StripAsciiWhitespace(text);
  const bool visible =
      std::all_of(secret.begin(), secret.end(),
                  [](unsigned char c) { return absl::ascii_isgraph(c); });
  if (!visible || secret.size() < std::max<size_t>(least, 1)) {
    return BadSettingFile(
        flag, path,
        absl::StrCat(
            "want one word of printable ASCII, ", least,
            " characters or more; \"openssl rand -hex 32\" makes one"));
  }
  return std::string(secret);
}

}  // namespace roundhouse
