// The system calls under durable_file.h, and the faults that tests put there.
//
// A process started with the test-only flag
//
//   --file-fault-at=SITE:KIND[:HOWLONG[:AFTER]];...
//
// has the calls of SITE (file_site.h) fail.  KIND is one of
//   ENOSPC, EDQUOT, EIO  the call answers with that error
//   short                a write takes half of its bytes, and says so
//   torn                 half of a write reaches the file, the process dies
//   lost                 the process dies where it would sync or rename, and
//                        nothing that was not synced before is there: contents,
//                        new names and renames (as when power fails)
//   flip                 one bit of what is written or read is another
// HOWLONG is a number of passes (1 where it is left out), seconds from the
// first one on ("4s"), or "ever"; AFTER passes go well before.  A pass is a
// call that the kind is about.
//
// Each call also tells a test's interposer where it is (at_file_site.h).
//
// Without the flag a call costs one relaxed load more.  All calls answer as the
// system's do, with errno; a write or a read may be short.  Thread-safe.
#ifndef ROUNDHOUSE_BASE_FILES_FILE_FAULT_H_
#define ROUNDHOUSE_BASE_FILES_FILE_FAULT_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/files/file_site.h"

namespace roundhouse {

inline constexpr size_t kMaxFileFaults = 16;

// Call before threads start; an empty text arms nothing.  INVALID_ARGUMENT
// names what is malformed or no site.
absl::Status ArmFileFaults(const std::string& text);

// What was armed; for the processes that this one starts.
std::string ArmedFileFaults();
// `text` without what ends a process: for one that takes a dead one's place.
std::string FaultsThatDoNotKill(const std::string& text);

namespace file_calls {

int Open(FileSite site, const std::string& path, int flags, mode_t mode);
int MakeFolder(FileSite site, const std::string& path, mode_t mode);
// In the folder that the descriptor is of.
int OpenAt(FileSite site, int folder, const std::string& name, int flags,
           mode_t mode);
int MakeFolderAt(FileSite site, int folder, const std::string& name,
                 mode_t mode);
int RenameAt(FileSite site, int folder, const std::string& from,
             const std::string& to, unsigned int flags);
ssize_t Read(FileSite site, int fd, void* target, size_t bytes);
ssize_t Write(FileSite site, int fd, const void* data, size_t bytes);
// At `offset`.
ssize_t WriteAt(FileSite site, int fd, const void* data, size_t bytes,
                int64_t offset);
// fsync; of a folder too.
int Sync(FileSite site, int fd);
int SyncData(FileSite site, int fd);
// renameat2.
int Rename(FileSite site, const std::string& from, const std::string& to,
           unsigned int flags);
// A second name for a file; nothing is there yet under it.
int Link(FileSite site, const std::string& from, const std::string& to);
// Removals fail with errors; the other kinds pass them by.
int Unlink(FileSite site, const std::string& path);
// `flags`: AT_REMOVEDIR, or 0.
int UnlinkAt(FileSite site, int folder, const std::string& name, int flags);
// Removes what a call that failed has left, if it can.  No fault strikes it, so
// that one that comes once is not used up by what comes after it.
void Discard(FileSite site, const std::string& path);
// This is posix_fallocate from the beginning; it fails with -1 and errno.
int Allocate(FileSite site, int fd, uint64_t bytes);
// This is bind, which makes a socket's file.
int Bind(FileSite site, int fd, const struct sockaddr* address,
         socklen_t bytes);

}  // namespace file_calls
}  // namespace roundhouse

#endif  // ROUNDHOUSE_BASE_FILES_FILE_FAULT_H_
