#include "server/doctor/file_checks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/byte_text.h"
#include "server/store/disk_reserve.h"

namespace roundhouse {
namespace {

using Kind = PathMeasure::Kind;

constexpr mode_t kOthers = 0007;

Finding Problem(const std::string& name, const std::string& found,
                const std::string& remedy) {
  return {.name = name,
          .found = found,
          .verdict = Verdict::kProblem,
          .remedy = remedy};
}

std::string ModeText(mode_t mode) { return absl::StrFormat("%04o", mode); }

std::string MakeCommand(const std::string& path, const Looker& looker) {
  return absl::StrCat("install -d -m 0750 -o ", looker.name, " ", path);
}

// A folder that the daemon writes to, and makes where it can.
Finding CheckOwnFolder(const std::string& name, const std::string& path,
                       const PathMeasure& folder, const PathMeasure& parent,
                       const Looker& looker) {
  switch (folder.kind) {
    case Kind::kMissing:
      if (parent.kind == Kind::kDirectory && parent.writable) {
        return {.name = name,
                .found = absl::StrCat(path, " is made by the daemon")};
      }
      return Problem(name,
                     absl::StrCat(path, " is missing, and ", looker.name,
                                  " can't make it"),
                     MakeCommand(path, looker));
    case Kind::kHangs:
    case Kind::kRefused:
      return Problem(name, absl::StrCat(path, ": ", folder.error),
                     absl::StrCat("stat ", path, "; mount"));
    case Kind::kOther:
      return Problem(name, absl::StrCat(path, " is no directory"),
                     absl::StrCat("mv ", path, " ", path, ".old"));
    case Kind::kDirectory:
      break;
  }
  if (!folder.writable) {
    return Problem(name,
                   absl::StrCat(path, " can't be written by ", looker.name),
                   absl::StrCat("chown ", looker.name, " ", path,
                                " && chmod u+rwx ", path));
  }
  return {.name = name,
          .found = absl::StrCat(path, ", mode ", ModeText(folder.mode))};
}

}  // namespace

Finding CheckStateDirectory(const std::string& path, const PathMeasure& state,
                            const PathMeasure& parent, const Looker& looker) {
  Finding finding =
      CheckOwnFolder("state directory", path, state, parent, looker);
  if (finding.verdict == Verdict::kOk && state.kind == Kind::kDirectory &&
      (state.mode & kOthers) != 0) {
    finding.verdict = Verdict::kWarning;
    absl::StrAppend(&finding.found, ": every user of the machine may enter it");
    finding.remedy = absl::StrCat("chmod o-rwx ", path);
  }
  return finding;
}

Finding CheckDisk(const std::string& path, const PathMeasure& state,
                  const PathMeasure& reserve) {
  Finding finding = {.name = "disk"};
  if (state.total_bytes == 0) {
    finding.found = absl::StrCat("nobody says how much is free at ", path);
    finding.verdict = Verdict::kWarning;
    finding.remedy = absl::StrCat("df -h ", path);
    return finding;
  }
  finding.found = absl::StrCat(ByteText(state.free_bytes), " of ",
                               ByteText(state.total_bytes), " are free; ",
                               reserve.kind == Kind::kOther
                                   ? "the job store's reserve is held"
                                   : "no reserve is held for the job store");
  if (state.free_bytes >= kLittleDiskBytes) return finding;
  finding.verdict = state.free_bytes < 2 * kDiskReserveBytes
                        ? Verdict::kProblem
                        : Verdict::kWarning;
  finding.remedy = absl::StrCat("du -xh -d 2 ", path,
                                " | sort -h: old checkpoints and results");
  return finding;
}

Finding CheckSocketFolder(const std::string& path, const PathMeasure& folder,
                          const PathMeasure& parent, const Looker& looker) {
  return CheckOwnFolder("socket", path, folder, parent, looker);
}

Finding CheckDataRoot(const std::string& path, const PathMeasure& root,
                      const Looker& looker) {
  const std::string name = "data root";
  if (root.kind == Kind::kHangs) {
    return Problem(name, absl::StrCat(path, ": ", root.error),
                   absl::StrCat("umount -l ", path,
                                ", and mount it when its server answers"));
  }
  if (root.kind == Kind::kMissing) {
    return Problem(name, absl::StrCat(path, " does not exist"),
                   absl::StrCat("mkdir ", path, ", or another --data-root"));
  }
  if (root.kind == Kind::kOther) {
    return Problem(name, absl::StrCat(path, " is no directory"),
                   "name the folder that holds it in --data-root");
  }
  if (root.kind == Kind::kRefused || !root.readable) {
    return Problem(name, absl::StrCat(path, " can't be read by ", looker.name),
                   absl::StrCat("setfacl -m u:", looker.name, ":rx ", path));
  }
  return {.name = name, .found = path};
}

}  // namespace roundhouse
