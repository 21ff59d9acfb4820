#include "base/files/file_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/files/at_file_site.h"
#include "base/files/unsynced.h"
#include "base/mutex.h"

namespace roundhouse {
namespace {

enum class Kind { kError, kShort, kTorn, kLost, kFlip };
enum class Call { kOpen, kRead, kWrite, kSync, kRename, kRemove };

struct Fault {
  std::string site;
  Kind kind = Kind::kError;
  int error = 0;              // of kError
  int64_t passes_left = 1;    // -1: any number
  int64_t passes_before = 0;  // that go well
  std::optional<absl::Duration> lasting;
  std::optional<absl::Time> until;  // once it has begun
  uint64_t passes = 0;
};

std::atomic<bool> armed{false};
bool Armed() { return armed.load(std::memory_order_relaxed); }
Mutex mutex;
std::vector<Fault>& Faults() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* const faults = new std::vector<Fault>;
  return *faults;
}
std::string& ArmedText() {  // written before threads start
  static auto* const text = new std::string;
  return *text;
}

bool IsAbout(Kind kind, Call call) {
  switch (kind) {
    case Kind::kError:
      return true;
    case Kind::kShort:
    case Kind::kTorn:
      return call == Call::kWrite;
    case Kind::kLost:
      return call == Call::kSync || call == Call::kRename;
    case Kind::kFlip:
      return call == Call::kWrite || call == Call::kRead;
  }
  return false;
}

bool IsOver(const Fault& fault) {
  if (fault.until.has_value()) return WallTime() >= *fault.until;
  return fault.passes_left == 0;
}

struct Pass {
  Kind kind = Kind::kError;
  int error = 0;
  uint64_t number = 0;
};

// The fault of this pass; none: it goes well.
std::optional<Pass> TakePass(FileSite site, Call call) {
  if (!Armed()) return std::nullopt;
  MutexLock lock(mutex);
  for (Fault& fault : Faults()) {
    if (fault.site != site.name || !IsAbout(fault.kind, call)) continue;
    if (fault.passes_before > 0) {
      --fault.passes_before;
      continue;
    }
    if (fault.lasting.has_value() && !fault.until.has_value()) {
      fault.until = WallTime() + *fault.lasting;
    }
    if (IsOver(fault)) continue;
    if (!fault.until.has_value() && fault.passes_left > 0) --fault.passes_left;
    if (fault.passes++ == 0) dprintf(STDERR_FILENO, "fault at %s\n", site.name);
    return Pass{fault.kind, fault.error, fault.passes};
  }
  return std::nullopt;
}

// Answers as a call that fails.
bool Fails(const std::optional<Pass>& pass) {
  if (!pass.has_value() || pass->kind != Kind::kError) return false;
  errno = pass->error;
  return true;
}

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

void DieIfLost(const std::optional<Pass>& pass) {
  if (!pass.has_value() || pass->kind != Kind::kLost) return;
  TakeBackUnsynced();
  Die();
}

// Another bit each time.
void Flip(char* bytes, size_t count, uint64_t number) {
  const uint64_t at = number * 0x9e3779b97f4a7c15u;
  bytes[(at >> 8) % count] ^= static_cast<char>(1 << (at % 8));
}

template <typename Put>
ssize_t PutBytes(FileSite site, const void* data, size_t bytes,
                 const Put& put) {
  const auto pass = TakePass(site, Call::kWrite);
  if (Fails(pass)) return -1;
  if (!pass.has_value() || bytes == 0) return put(data, bytes);
  const size_t half = std::max<size_t>(bytes / 2, 1);
  if (pass->kind == Kind::kFlip) {
    std::vector<char> flipped(static_cast<const char*>(data),
                              static_cast<const char*>(data) + bytes);
    Flip(flipped.data(), bytes, pass->number);
    return put(flipped.data(), bytes);
  }
  const ssize_t done = put(data, half);
  if (pass->kind == Kind::kTorn) Die();
  return done;
}

// Where the folder is now.
std::string PathIn(int folder, const std::string& name) {
  char path[4096] = "";
  const std::string link = absl::StrCat("/proc/self/fd/", folder);
  const ssize_t bytes = readlink(link.c_str(), path, sizeof(path));
  return absl::StrCat(
      absl::string_view(path, static_cast<size_t>(std::max<ssize_t>(bytes, 0))),
      "/", name);
}

absl::Status Malformed(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("file_fault_at: want SITE:KIND[:HOWLONG[:AFTER]], got \"",
                   text, "\": ", why));
}

bool SetKind(absl::string_view name, Fault& fault) {
  if (name == "ENOSPC") fault.error = ENOSPC;
  if (name == "EDQUOT") fault.error = EDQUOT;
  if (name == "EIO") fault.error = EIO;
  if (name == "short") fault.kind = Kind::kShort;
  if (name == "torn") fault.kind = Kind::kTorn;
  if (name == "lost") fault.kind = Kind::kLost;
  if (name == "flip") fault.kind = Kind::kFlip;
  return fault.error != 0 || fault.kind != Kind::kError;
}

bool SetHowLong(absl::string_view text, Fault& fault) {
  int64_t number = 0;
  if (text == "ever") {
    fault.passes_left = -1;
    return true;
  }
  const bool seconds = absl::ConsumeSuffix(&text, "s");
  if (!absl::SimpleAtoi(text, &number) || number < 1) return false;
  if (seconds) {
    fault.lasting = absl::Seconds(number);
  } else {
    fault.passes_left = number;
  }
  return true;
}

absl::Status ParseFault(absl::string_view text, Fault& fault) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() < 2 || parts.size() > 4) return Malformed(text, "parts");
  fault.site = std::string(parts[0]);
  if (std::none_of(std::begin(kFileSites), std::end(kFileSites),
                   [&](FileSite site) { return fault.site == site.name; })) {
    return Malformed(text, "no such site (base/files/file_site.h)");
  }
  if (!SetKind(parts[1], fault)) return Malformed(text, "no such kind");
  if (parts.size() > 2 && !SetHowLong(parts[2], fault)) {
    return Malformed(text, "how long?");
  }
  if (parts.size() > 3 && (!absl::SimpleAtoi(parts[3], &fault.passes_before) ||
                           fault.passes_before < 0)) {
    return Malformed(text, "after how many?");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ArmFileFaults(const std::string& text) {
  std::vector<Fault> faults;
  for (absl::string_view one : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    Fault& fault = faults.emplace_back();
    const absl::Status status = ParseFault(one, fault);
    if (!status.ok()) return status;
  }
  if (faults.size() > kMaxFileFaults) return Malformed(text, "too many");
  const bool loses =
      std::any_of(faults.begin(), faults.end(),
                  [](const Fault& fault) { return fault.kind == Kind::kLost; });
  MutexLock lock(mutex);
  ArmedText() = text;
  Faults() = std::move(faults);
  WatchUnsynced(loses);
  armed.store(!Faults().empty(), std::memory_order_relaxed);
  return absl::OkStatus();
}

std::string ArmedFileFaults() { return ArmedText(); }

std::string FaultsThatDoNotKill(const std::string& text) {
  std::vector<absl::string_view> kept;
  for (absl::string_view one : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    Fault fault;
    if (!ParseFault(one, fault).ok()) continue;
    if (fault.kind != Kind::kTorn && fault.kind != Kind::kLost) {
      kept.push_back(one);
    }
  }
  return absl::StrJoin(kept, ";");
}

namespace file_calls {

int Open(FileSite site, const std::string& path, int flags, mode_t mode) {
  const AtFileSite at(site);
  if (Fails(TakePass(site, Call::kOpen))) return -1;
  const bool is_new = (flags & O_CREAT) != 0 && access(path.c_str(), F_OK) != 0;
  const int fd = open(path.c_str(), flags, mode);
  if (fd >= 0 && is_new) NoteCreated(path);
  return fd;
}

int MakeFolder(FileSite site, const std::string& path, mode_t mode) {
  const AtFileSite at(site);
  if (Fails(TakePass(site, Call::kOpen))) return -1;
  return mkdir(path.c_str(), mode);
}

int OpenAt(FileSite site, int folder, const std::string& name, int flags,
           mode_t mode) {
  const AtFileSite at(site);
  if (Fails(TakePass(site, Call::kOpen))) return -1;
  const int fd = openat(folder, name.c_str(), flags, mode);
  const bool is_new = fd >= 0 && (flags & O_EXCL) != 0;
  if (is_new && Armed()) NoteCreated(PathIn(folder, name));
  return fd;
}

int MakeFolderAt(FileSite site, int folder, const std::string& name,
                 mode_t mode) {
  const AtFileSite at(site);
  if (Fails(TakePass(site, Call::kOpen))) return -1;
  return mkdirat(folder, name.c_str(), mode);
}

int RenameAt(FileSite site, int folder, const std::string& from,
             const std::string& to, unsigned int flags) {
  const AtFileSite at(site);
  const auto pass = TakePass(site, Call::kRename);
  DieIfLost(pass);
  if (Fails(pass)) return -1;
  if (Armed()) KeepReplaced(PathIn(folder, to), flags);
  const int result = renameat2(folder, from.c_str(), folder, to.c_str(), flags);
  if (result == 0 && Armed()) {
    NoteRenamed(PathIn(folder, from), PathIn(folder, to), flags);
  }
  return result;
}

ssize_t Read(FileSite site, int fd, void* target, size_t bytes) {
  const AtFileSite at(site);
  const auto pass = TakePass(site, Call::kRead);
  if (Fails(pass)) return -1;
  const ssize_t got = read(fd, target, bytes);
  if (got > 0 && pass.has_value()) {
    Flip(static_cast<char*>(target), static_cast<size_t>(got), pass->number);
  }
  return got;
}

ssize_t Write(FileSite site, int fd, const void* data, size_t bytes) {
  const AtFileSite at(site);
  NoteWritten(fd, -1, bytes);
  return PutBytes(site, data, bytes, [fd](const void* from, size_t count) {
    return write(fd, from, count);
  });
}

ssize_t WriteAt(FileSite site, int fd, const void* data, size_t bytes,
                int64_t offset) {
  const AtFileSite at(site);
  NoteWritten(fd, offset, bytes);
  return PutBytes(site, data, bytes,
                  [fd, offset](const void* from, size_t count) {
                    return pwrite(fd, from, count, offset);
                  });
}

int Sync(FileSite site, int fd) {
  const AtFileSite at(site);
  const auto pass = TakePass(site, Call::kSync);
  DieIfLost(pass);
  if (Fails(pass)) return -1;
  const int result = fsync(fd);
  if (result == 0) NoteSynced(fd);
  return result;
}

int SyncData(FileSite site, int fd) {
  const AtFileSite at(site);
  const auto pass = TakePass(site, Call::kSync);
  DieIfLost(pass);
  if (Fails(pass)) return -1;
  const int result = fdatasync(fd);
  if (result == 0) NoteSynced(fd);
  return result;
}

int Rename(FileSite site, const std::string& from, const std::string& to,
           unsigned int flags) {
  const AtFileSite at(site);
  const auto pass = TakePass(site, Call::kRename);
  DieIfLost(pass);
  if (Fails(pass)) return -1;
  KeepReplaced(to, flags);
  const int result =
      renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
  if (result == 0) NoteRenamed(from, to, flags);
  return result;
}

int Link(FileSite site, const std::string& from, const std::string& to) {
  const AtFileSite at(site);
  if (Fails(TakePass(site, Call::kOpen))) return -1;
  const int result = link(from.c_str(), to.c_str());
  if (result == 0) NoteCreated(to);
  return result;
}

int Unlink(FileSite site, const std::string& path) {
  return UnlinkAt(site, AT_FDCWD, path, 0);
}

int UnlinkAt(FileSite site, int folder, const std::string& name, int flags) {
  const AtFileSite at(site);
  if (Fails(TakePass(site, Call::kRemove))) return -1;
  return unlinkat(folder, name.c_str(), flags);
}

void Discard(FileSite site, const std::string& path) {
  const AtFileSite at(site);
  unlink(path.c_str());
}

int Allocate(FileSite site, int fd, uint64_t bytes) {
  const AtFileSite at(site);
  if (Fails(TakePass(site, Call::kOpen))) return -1;
  errno = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  return errno == 0 ? 0 : -1;
}

int Bind(FileSite site, int fd, const struct sockaddr* address,
         socklen_t bytes) {
  const AtFileSite at(site);
  if (Fails(TakePass(site, Call::kOpen))) return -1;
  return bind(fd, address, bytes);
}

}  // namespace file_calls
}  // namespace roundhouse
