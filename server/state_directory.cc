#include "server/state_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/files/durable_file.h"
#include "base/files/file_fault.h"
#include "base/files/file_site.h"
#include "base/log.h"
#include "base/status.h"
#include "server/spec/spec_error.h"

namespace roundhouse {
namespace {

constexpr absl::Duration kLockPause = absl::Milliseconds(20);
constexpr char kLockFile[] = "lock";

// A directory that an earlier version made let everybody on the machine read
// members' data.
void CloseToOthers(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::perms now = fs::status(directory, error).permissions();
  const fs::perms open_to_others =
      fs::perms::others_all | fs::perms::group_write;
  if (error || (now & open_to_others) == fs::perms::none) return;
  fs::permissions(directory, open_to_others, fs::perm_options::remove, error);
  if (error) {
    RH_LOG(kWarning) << "--state-dir: " << directory
                     << " is open to others and stays so: " << error.message();
  }
}

absl::Status Unusable(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("--state-dir: opening ", path, ": ", std::strerror(errno)));
}

// Tries until `give_up`.
absl::Status TakeLock(int fd, const std::string& path, absl::Time give_up) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return absl::UnimplementedError(
          absl::StrCat("locking ", path, ": ", std::strerror(errno)));
    }
    if (WallTime() > give_up) {
      return absl::FailedPreconditionError(
          absl::StrCat("--state-dir: another roundhoused uses ", path));
    }
    absl::SleepFor(kLockPause);
  }
  return absl::OkStatus();
}

}  // namespace

StateDirectory::StateDirectory(std::string path, Descriptor directory,
                               Descriptor lock)
    : path_(std::move(path)),
      directory_(std::move(directory)),
      lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Lock(
    const std::string& path, absl::Duration patience) {
  const absl::Status made_folder = MakeFolderDurably(kStateFolder, path);
  CloseToOthers(path);
  Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return Unusable(path);
  if (!made_folder.ok()) {
    // Its parent may be one that this user can't read, and so not sync.
    RH_LOG(kWarning) << "--state-dir: " << made_folder.message();
  }
  Descriptor lock(file_calls::OpenAt(kStateLock, directory.get(), kLockFile,
                                     O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.get() < 0) return Unusable(absl::StrCat(path, "/", kLockFile));
  std::unique_ptr<StateDirectory> made(
      new StateDirectory(path, std::move(directory), std::move(lock)));
  const absl::Time give_up = WallTime() + patience;
  RETURN_IF_ERROR(TakeLock(made->lock_.get(), path, give_up));
  const absl::Status locked = TakeLock(made->fd(), path, give_up);
  if (absl::IsUnimplemented(locked)) {
    // Some network file systems; its file is locked.
    RH_LOG(kWarning) << "--state-dir: " << locked.message()
                     << "; only the file " << kLockFile << " in it is locked";
  } else if (!locked.ok()) {
    return locked;
  }
  struct stat info;
  if (fstat(made->fd(), &info) != 0) return Unusable(path);
  made->identity_ = {info.st_dev, info.st_ino};
  // Replaced while this process waited for its lock.
  RETURN_IF_ERROR(made->Check());
  return made;
}

absl::Status StateDirectory::Gone(const std::string& what) const {
  return FieldError(
      absl::StatusCode::kFailedPrecondition, FieldReason::kStateDirectoryGone,
      "",
      absl::StrCat("the server's state directory ", path_, " is no longer ",
                   "what it was (", what, "), so nothing it says is kept and ",
                   "it takes no jobs; put the directory back, or stop ",
                   "roundhoused and start it again"));
}

absl::Status StateDirectory::Keep(const std::string& name) {
  struct stat info;
  if (fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) !=
      0) {
    return Gone(absl::StrCat(name, ": ", std::strerror(errno)));
  }
  kept_.emplace_back(name, Identity{info.st_dev, info.st_ino});
  return absl::OkStatus();
}

absl::Status StateDirectory::Check() const {
  const auto identity = [this](const std::string& name) {
    struct stat info;
    const int failed = name.empty() ? stat(path_.c_str(), &info)
                                    : fstatat(directory_.get(), name.c_str(),
                                              &info, AT_SYMLINK_NOFOLLOW);
    return failed == 0 ? std::optional<Identity>({info.st_dev, info.st_ino})
                       : std::nullopt;
  };
  const auto same = [&](const std::string& name, const Identity& expected) {
    const std::optional<Identity> found = identity(name);
    if (found == expected) return absl::OkStatus();
    return Gone(absl::StrCat(name.empty() ? "it" : name, " ",
                             found.has_value() ? "was replaced" : "is gone"));
  };
  RETURN_IF_ERROR(same("", identity_));
  for (const auto& [name, expected] : kept_) {
    RETURN_IF_ERROR(same(name, expected));
  }
  return absl::OkStatus();
}

StateWatch::StateWatch(EventLoop& loop, const StateDirectory& directory,
                       std::function<void(const absl::Status&)> told,
                       absl::Duration interval)
    : loop_(loop),
      directory_(directory),
      told_(std::move(told)),
      interval_(interval),
      background_(loop) {
  Later();
}

StateWatch::~StateWatch() { loop_.CancelTimer(timer_); }

void StateWatch::Later() {
  timer_ = loop_.After(interval_, [this] {
    background_.Run([&directory = directory_] { return directory.Check(); },
                    [this](const absl::Status& found) {
                      OnLooked(found);
                      Later();
                    });
  });
}

void StateWatch::OnLooked(const absl::Status& found) {
  // Too much waits for the disk: it says nothing of the directory.
  if (absl::IsUnavailable(found)) return;
  if (found.ok() != gone_) return;
  gone_ = !found.ok();
  if (gone_) {
    RH_LOG(kError) << found.message();
  } else {
    RH_LOG(kInfo) << "the state directory is there again";
  }
  told_(found);
}

}  // namespace roundhouse
